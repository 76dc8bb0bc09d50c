package deployment

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

// recreate is the Recreate strategy: all old pods go before a new one comes.
func (r *rollout) recreate(ctx context.Context) error {
	ready, err := r.oldPodsGone(ctx)
	if err != nil {
		return err
	}
	if ready {
		if err := r.ensureNewReplicaSet(ctx); err != nil {
			return err
		}
		if _, err := r.resizeIfNeeded(ctx, r.newRS, r.bounds.replicas); err != nil {
			return err
		}
		if r.isComplete(&r.observed) {
			if err := r.cleanUpHistory(ctx); err != nil {
				return err
			}
		}
	}
	r.rolloutStatus()
	return r.writeStatus(ctx)
}

// oldPodsGone scales the old ReplicaSets down, and tells whether no pod of
// theirs runs any more.
func (r *rollout) oldPodsGone(ctx context.Context) (bool, error) {
	scaled := false
	for _, rs := range active(r.old) {
		if err := r.resize(ctx, rs, 0); err != nil {
			return false, err
		}
		scaled = true
	}
	if scaled {
		return false, nil
	}
	for _, rs := range r.old {
		// A controller that has not seen the scale-down may be creating pods,
		// which neither the status nor the cache of pods shows.
		if !isObserved(rs) || rs.Status.Replicas > 0 {
			return false, nil
		}
		running, err := r.hasRunningPod(rs)
		if err != nil || running {
			return false, err
		}
	}
	return true, nil
}

// hasRunningPod tells whether a pod of rs has not come to an end, one that is
// being deleted included.
func (r *rollout) hasRunningPod(rs *appsv1.ReplicaSet) (bool, error) {
	pods, err := ownerindex.Owned[*corev1.Pod](r.pods, ownerindex.OwnerOf(replicaSetKind, rs))
	if err != nil {
		return false, fmt.Errorf("list the pods of replica set %s: %w", rs.Name, err)
	}
	for _, pod := range pods {
		if !availability.IsTerminal(pod) {
			return true, nil
		}
	}
	return false, nil
}
