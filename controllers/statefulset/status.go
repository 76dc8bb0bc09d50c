package statefulset

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// report writes the status if it differs from what is stored. It returns after
// which time the set must come back for what was held back.
func (p *pass) report(ctx context.Context) (time.Duration, error) {
	if p.maxUnavailable {
		p.metrics.setMaxUnavailable(p.set, maxUnavailableOf(p.set))
	}
	if sameStatus(&p.set.Status, &p.status) {
		p.held.Written(p.key)
		return 0, nil
	}
	if !urgent(&p.set.Status, &p.status, int32(p.ordinals.count())) {
		if wait := p.held.Wait(p.key, p.now); wait > 0 {
			return wait, nil
		}
	}
	changed := *p.set // nothing else is changed, so nothing else needs a copy
	changed.Status = p.status
	_, err := p.client.AppsV1().StatefulSets(p.set.Namespace).UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), notfound.ByAPIServer(err):
		// The set has changed or gone since; its event brings the key back.
		return 0, nil
	case err != nil:
		p.unsure.Note(p.key, err)
		return 0, fmt.Errorf("update status of %s: %w", p.key, err)
	}
	p.held.Written(p.key)
	return 0, nil
}

// urgent tells whether somebody may wait for the change from before to after,
// goal being the number of pods that the set asks for. Not urgent are counts of
// pods that come and go, until all are there.
func urgent(before, after *appsv1.StatefulSetStatus, goal int32) bool {
	onTheWay := *before
	onTheWay.Replicas, onTheWay.ReadyReplicas, onTheWay.AvailableReplicas = after.Replicas, after.ReadyReplicas, after.AvailableReplicas
	onTheWay.CurrentReplicas, onTheWay.UpdatedReplicas = after.CurrentReplicas, after.UpdatedReplicas
	return !sameStatus(&onTheWay, after) ||
		after.Replicas == goal && after.ReadyReplicas == goal && after.AvailableReplicas == goal && after.UpdatedReplicas == goal
}

func sameStatus(a, b *appsv1.StatefulSetStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration &&
		a.Replicas == b.Replicas && a.ReadyReplicas == b.ReadyReplicas && a.AvailableReplicas == b.AvailableReplicas &&
		a.CurrentReplicas == b.CurrentReplicas && a.UpdatedReplicas == b.UpdatedReplicas &&
		a.CurrentRevision == b.CurrentRevision && a.UpdateRevision == b.UpdateRevision &&
		ptr.Deref(a.CollisionCount, 0) == ptr.Deref(b.CollisionCount, 0) &&
		slices.Equal(a.Conditions, b.Conditions)
}
