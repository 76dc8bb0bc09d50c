package deployment

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// roll is the RollingUpdate strategy: it takes one step, up or down, and is
// called again when the ReplicaSets have followed.
func (r *rollout) roll(ctx context.Context) error {
	if err := r.ensureNewReplicaSet(ctx); err != nil {
		return err
	}
	grown, err := r.resizeIfNeeded(ctx, r.newRS, r.rollingSize())
	if err != nil {
		return err
	}
	if !grown && !r.shrinkOld(ctx) && r.isComplete(&r.observed) {
		if err := r.cleanUpHistory(ctx); err != nil {
			return err
		}
	}
	r.rolloutStatus()
	return errors.Join(r.stepErr, r.writeStatus(ctx))
}

// rollingSize is the size that the new ReplicaSet may have now.
func (r *rollout) rollingSize() int32 {
	current := replicasOf(r.newRS.Spec.Replicas)
	if current >= r.bounds.replicas {
		return r.bounds.replicas
	}
	return r.bounds.newSize(r.d.Spec.Strategy.Type, current, wanted(r.all))
}

// shrinkOld takes as many replicas from the old ReplicaSets as the bounds
// allow: unhealthy ones first, which cost no availability, then the oldest. An
// error is kept for later, so that the status is written all the same.
func (r *rollout) shrinkOld(ctx context.Context) bool {
	if wanted(r.old) == 0 {
		return false
	}
	if slices.ContainsFunc(active(r.all), mayHaveBeenSmaller) {
		return false
	}
	// Replicas of the new one that are not available yet must not be paid for
	// with available old ones.
	newUnavailable := int64(replicasOf(r.newRS.Spec.Replicas)) - int64(r.newRS.Status.AvailableReplicas)
	most := wanted(r.all) - r.bounds.minAvailable() - newUnavailable
	if most <= 0 {
		return false
	}
	unhealthy := r.shrink(ctx, most, func(rs *appsv1.ReplicaSet) int64 {
		return int64(replicasOf(rs.Spec.Replicas)) - int64(rs.Status.AvailableReplicas)
	})
	healthy := r.shrink(ctx, serving(r.all)-r.bounds.minAvailable(), func(rs *appsv1.ReplicaSet) int64 {
		return int64(replicasOf(rs.Spec.Replicas))
	})
	return unhealthy || healthy
}

// mayHaveBeenSmaller tells whether a ReplicaSet was resized more than once since
// its status: when a rollout is taken back, it may have been small for a moment,
// and have lost what the status says is available.
func mayHaveBeenSmaller(rs *appsv1.ReplicaSet) bool {
	return rs.Generation-rs.Status.ObservedGeneration > 1
}

// shrink takes at most budget replicas from the old ReplicaSets, oldest first,
// and from each at most what mayLose says.
func (r *rollout) shrink(ctx context.Context, budget int64, mayLose func(*appsv1.ReplicaSet) int64) bool {
	shrunk := false
	for i := range r.old {
		rs := r.old[i]
		size := int64(replicasOf(rs.Spec.Replicas))
		lose := min(budget, mayLose(rs), size)
		if lose <= 0 {
			continue
		}
		if err := r.resize(ctx, rs, int32(size-lose)); err != nil {
			r.stepErr = err
			return shrunk
		}
		budget -= lose
		shrunk = true
	}
	return shrunk
}
