package statefulset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/slowstart"
)

// Reasons of the condition Progressing, which sets with the strategy Recreate have.
const (
	recreateInProgress = "RecreateInProgress"
	recreateCompleted  = "RecreateCompleted"
)

// clearOldPods deletes all old pods. It returns true while there are any.
func (p *pass) clearOldPods(ctx context.Context) (waiting bool, err error) {
	var old []*v1.Pod
	for _, member := range p.members {
		if p.isReplaceable(member.Pod) {
			old = append(old, member.Pod)
		}
		waiting = waiting || p.isOld(member.Pod)
	}
	if _, err := slowstart.Run(ctx, len(old), func(ctx context.Context, i int) error {
		return p.deletePod(ctx, old[i])
	}); err != nil {
		return true, err
	}
	switch {
	case waiting:
		p.setProgressing(v1.ConditionTrue, recreateInProgress, "Deleting old revision pods")
	case p.current.Name != p.update.Name:
		p.setProgressing(v1.ConditionTrue, recreateInProgress, "Waiting for new-revision pods to be created")
	}
	return waiting, nil
}

// recreated reports the end of a Recreate, if its beginning was reported.
func (p *pass) recreated() {
	if p.set.Spec.UpdateStrategy.Type != appsv1.RecreateStatefulSetStrategyType {
		return
	}
	for _, condition := range p.status.Conditions {
		if condition.Type == appsv1.StatefulSetProgressing {
			p.setProgressing(v1.ConditionFalse, recreateCompleted, "All pods recreated successfully")
			return
		}
	}
}

func (p *pass) setProgressing(status v1.ConditionStatus, reason, message string) {
	wanted := appsv1.StatefulSetCondition{
		Type: appsv1.StatefulSetProgressing, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(p.now),
	}
	for i := range p.status.Conditions {
		condition := &p.status.Conditions[i]
		if condition.Type != wanted.Type {
			continue
		}
		if condition.Status == status {
			wanted.LastTransitionTime = condition.LastTransitionTime
		}
		*condition = wanted
		return
	}
	p.status.Conditions = append(p.status.Conditions, wanted)
}
