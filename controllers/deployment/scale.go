package deployment

import (
	"cmp"
	"context"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// isScalingEvent tells whether the Deployment's replicas have changed since its
// ReplicaSets were last sized. Several ReplicaSets of a Deployment that has the
// Recreate strategy, as after a change from RollingUpdate in the midst of a
// rollout, are not scaled: its rollout sizes them, and would never come about.
func (r *rollout) isScalingEvent() bool {
	wantPods := active(r.all)
	if len(wantPods) > 1 && r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return false
	}
	for _, rs := range wantPods {
		if desired, ok := replicasAnnotation(rs, desiredReplicasAnnotation); ok && desired != int64(r.bounds.replicas) {
			return true
		}
	}
	return false
}

// scale brings the ReplicaSets to the Deployment's size without rolling out.
func (r *rollout) scale(ctx context.Context) error {
	if err := r.syncNewReplicaSet(ctx); err != nil {
		return err
	}
	if err := r.distribute(ctx); err != nil {
		return err
	}
	if _, rollback := rollbackTo(r.d); r.d.Spec.Paused && !rollback {
		if err := r.cleanUpHistory(ctx); err != nil {
			return err
		}
	}
	r.plainStatus()
	return r.writeStatus(ctx)
}

func (r *rollout) distribute(ctx context.Context) error {
	if len(r.all) == 0 {
		return nil
	}
	wantPods := active(r.all)
	switch {
	case len(wantPods) == 1:
		// Its annotations are refreshed even if its size is right, since the
		// Deployment would be taken for scaling for ever otherwise.
		return r.resize(ctx, wantPods[0], r.bounds.replicas)
	case len(wantPods) == 0:
		_, err := r.resizeIfNeeded(ctx, r.newestReplicaSet(), r.bounds.replicas)
		return err
	case r.newIsSaturated():
		for _, rs := range active(r.old) {
			if err := r.resize(ctx, rs, 0); err != nil {
				return err
			}
		}
		return nil
	case r.d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		return r.scaleInProportion(ctx, wantPods)
	default:
		return nil
	}
}

// newestReplicaSet is the one of the current template, or else the youngest.
func (r *rollout) newestReplicaSet() *appsv1.ReplicaSet {
	if r.newRS != nil {
		return r.newRS
	}
	return r.all[len(r.all)-1]
}

// newIsSaturated tells whether the new ReplicaSet has all the replicas, available.
func (r *rollout) newIsSaturated() bool {
	if r.newRS == nil || replicasOf(r.newRS.Spec.Replicas) != r.bounds.replicas {
		return false
	}
	desired, ok := replicasAnnotation(r.newRS, desiredReplicasAnnotation)
	return ok && desired == int64(r.bounds.replicas) && r.newRS.Status.AvailableReplicas == r.bounds.replicas
}

// scaleInProportion spreads the difference over the active ReplicaSets by size,
// to lessen the risk of a rollout that does not come to an end.
func (r *rollout) scaleInProportion(ctx context.Context, list []*appsv1.ReplicaSet) error {
	sizes := r.proportions(list)
	for _, share := range sizes {
		if err := r.resize(ctx, share.rs, share.size); err != nil {
			return err
		}
	}
	return nil
}

// share is the size that a ReplicaSet is to have.
type share struct {
	rs   *appsv1.ReplicaSet
	size int32
}

// proportions are the sizes of all of list, whose sum is what the bounds allow
// as far as no size would be negative. What rounding leaves goes to the first:
// the largest, and of equally large ones the youngest when replicas are added
// and the oldest when they are taken away.
func (r *rollout) proportions(list []*appsv1.ReplicaSet) []share {
	toAdd := r.bounds.maxTotal() - wanted(list)
	ordered := slices.SortedFunc(slices.Values(list), func(a, b *appsv1.ReplicaSet) int {
		bySize := cmp.Compare(replicasOf(b.Spec.Replicas), replicasOf(a.Spec.Replicas))
		if toAdd > 0 {
			return cmp.Or(bySize, byAge(b, a))
		}
		return cmp.Or(bySize, byAge(a, b))
	})
	var added int64
	sizes := make([]int64, len(ordered))
	for i, rs := range ordered {
		part := r.part(rs, toAdd, toAdd-added)
		sizes[i] = int64(replicasOf(rs.Spec.Replicas)) + part
		added += part
	}
	sizes[0] += toAdd - added
	result := make([]share, len(ordered))
	for i, rs := range ordered {
		result[i] = share{rs, int32(min(max(sizes[i], 0), math.MaxInt32))}
	}
	return result
}

// part is how much of toAdd a ReplicaSet gets when left of it has not been given away.
func (r *rollout) part(rs *appsv1.ReplicaSet, toAdd, left int64) int64 {
	if toAdd == 0 || left == 0 {
		return 0
	}
	size := int64(replicasOf(rs.Spec.Replicas))
	var fair int64
	if r.bounds.replicas == 0 {
		fair = -size
	} else {
		formerMost, ok := replicasAnnotation(rs, maxReplicasAnnotation)
		if !ok || formerMost == 0 {
			formerMost = int64(r.observed.Replicas)
		}
		if formerMost == 0 {
			return 0
		}
		// Half is rounded up; all numbers are positive, and their product is
		// below 2^63.
		product := size * r.bounds.maxTotal()
		fair = product/formerMost - size
		if rest := product % formerMost; rest >= formerMost-rest {
			fair++
		}
	}
	if toAdd > 0 {
		return min(fair, left)
	}
	return max(fair, left)
}
