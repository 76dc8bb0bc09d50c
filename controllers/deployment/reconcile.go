package deployment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/claim"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// rollout is one reconcile of one Deployment.
type rollout struct {
	*deploymentController
	// d is a copy. Its status, and its revision annotation, are what the
	// reconcile has found so far; stored is what the API server has.
	d      *appsv1.Deployment
	stored *appsv1.Deployment
	// observed is the status with which the reconcile began: progress is a
	// difference to it.
	observed appsv1.DeploymentStatus
	now      metav1.Time
	bounds   bounds

	// all claimed ReplicaSets, oldest first; newRS is the one of the current
	// template, or nil, and old are the others.
	all   []*appsv1.ReplicaSet
	newRS *appsv1.ReplicaSet
	old   []*appsv1.ReplicaSet
	// synced is set when newRS carries the Deployment's annotations.
	synced bool

	// stepErr is what kept the present step from being done.
	stepErr      error
	requeueAfter time.Duration
}

// reconcile brings one Deployment a step further.
func (c *deploymentController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	obj, exists, err := c.deployments.GetByKey(key.String())
	if err != nil {
		return work.Result{}, fmt.Errorf("look up deployment %s: %w", key, err)
	}
	if !exists {
		c.pace.forget(key)
		return work.Result{}, nil
	}
	stored, ok := obj.(*appsv1.Deployment)
	if !ok {
		return work.Result{}, fmt.Errorf("look up deployment %s: the cache holds a %T", key, obj)
	}
	r := &rollout{
		deploymentController: c,
		d:                    stored.DeepCopy(),
		stored:               stored,
		observed:             stored.Status,
		now:                  metav1.NewTime(c.clock.Now()),
		bounds:               boundsOf(stored),
	}
	err = r.run(ctx)
	if podcontrol.NamespaceTerminating(err) {
		err = nil
	}
	return work.Result{RequeueAfter: r.requeueAfter}, err
}

// run takes the first of the steps that apply.
func (r *rollout) run(ctx context.Context) error {
	if selectsAll(r.d) {
		return r.refuseSelectingAll(ctx)
	}
	if err := r.claimReplicaSets(ctx); err != nil {
		return err
	}
	if r.d.DeletionTimestamp != nil {
		r.plainStatus()
		return r.writeStatus(ctx)
	}
	if r.setPauseCondition() {
		if err := r.writeStatus(ctx); err != nil {
			return err
		}
	}
	if r.d.Spec.Paused {
		return r.scale(ctx)
	}
	if revision, wanted := rollbackTo(r.d); wanted {
		return r.rollBack(ctx, revision)
	}
	if err := r.syncNewReplicaSet(ctx); err != nil {
		return err
	}
	if r.isScalingEvent() {
		return r.scale(ctx)
	}
	switch r.d.Spec.Strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		return r.recreate(ctx)
	case appsv1.RollingUpdateDeploymentStrategyType:
		return r.roll(ctx)
	default:
		return fmt.Errorf("unexpected deployment strategy type: %s", r.d.Spec.Strategy.Type)
	}
}

// selectsAll tells whether the selector is missing or empty. The API server
// refuses that today.
func selectsAll(d *appsv1.Deployment) bool {
	selector := d.Spec.Selector
	return selector == nil || len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}

func (r *rollout) refuseSelectingAll(ctx context.Context) error {
	r.events.Event(r.d, corev1.EventTypeWarning, reasonSelectingAll, "This deployment is selecting all pods. A non-empty selector is required.")
	if r.d.Status.ObservedGeneration < r.d.Generation {
		r.d.Status.ObservedGeneration = r.d.Generation
		return r.writeStatus(ctx)
	}
	return nil
}

// claimReplicaSets adopts and releases ReplicaSets, and sorts out which is the new one.
func (r *rollout) claimReplicaSets(ctx context.Context) error {
	selector, err := metav1.LabelSelectorAsSelector(r.d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("deployment %s/%s has invalid label selector: %w", r.d.Namespace, r.d.Name, err)
	}
	candidates, err := ownerindex.Candidates[*appsv1.ReplicaSet](r.replicaSets, ownerindex.OwnerOf(deploymentKind, r.d))
	if err != nil {
		return fmt.Errorf("list replica sets: %w", err)
	}
	claims := claim.Claims[*appsv1.ReplicaSet]{
		Owner:     r.d,
		OwnerKind: controllerKind,
		Kind:      replicaSetKind,
		Selector:  selector,
		GetOwner: func(ctx context.Context, name string) (metav1.Object, error) {
			return r.client.AppsV1().Deployments(r.d.Namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Patch: claim.PatchReplicaSet(r.client),
	}
	claimed, err := claims.Claim(ctx, candidates)
	if err != nil {
		return fmt.Errorf("claim replica sets: %w", err)
	}
	r.all = sortedByAge(claimed)
	r.divide()
	return nil
}

// divide finds the new ReplicaSet among all: the oldest one of the current template.
func (r *rollout) divide() {
	r.newRS, r.old = nil, nil
	for _, rs := range r.all {
		if r.newRS == nil && equalTemplates(&rs.Spec.Template, &r.d.Spec.Template) {
			r.newRS = rs
			continue
		}
		r.old = append(r.old, rs)
	}
}

// replace puts the API server's answer in the place of what was claimed.
func (r *rollout) replace(rs *appsv1.ReplicaSet) {
	for _, list := range [][]*appsv1.ReplicaSet{r.all, r.old} {
		for i := range list {
			if list[i].UID == rs.UID {
				list[i] = rs
			}
		}
	}
	if r.newRS != nil && r.newRS.UID == rs.UID {
		r.newRS = rs
	}
}

// rollbackTo reads the annotation that asks for an earlier revision; 0 is the last one.
func rollbackTo(d *appsv1.Deployment) (int64, bool) {
	revision, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	return revision, err == nil
}

// replicasOf is spec.replicas, whose default is 1.
func replicasOf(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}
