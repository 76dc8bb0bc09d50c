package statefulset

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

// roll deletes the pods that a rolling update replaces next.
func (p *pass) roll(ctx context.Context) error {
	for _, pod := range p.nextToReplace() {
		if err := p.deletePod(ctx, pod); err != nil {
			return err
		}
		if revisionOf(pod) == p.status.CurrentRevision {
			p.status.CurrentReplicas--
		}
	}
	return nil
}

// nextToReplace chooses, from the highest ordinal down to the partition, the
// old pods that may go now.
func (p *pass) nextToReplace() []*v1.Pod {
	replicas := p.replicas()
	unavailable := p.ordinals.count() - len(replicas)
	for _, member := range replicas {
		if p.isUnavailable(member.Pod) {
			unavailable++
		}
	}
	// Those of them that the update comes to, from the top. Finished ones have
	// been deleted already, whatever their revision.
	partition := partitionOf(p.set)
	updatable := slices.DeleteFunc(replicas, func(m member) bool {
		return m.ordinal < partition || availability.IsTerminal(m.Pod)
	})
	slices.Reverse(updatable)
	if !p.maxUnavailable {
		return p.nextOne(updatable)
	}
	p.metrics.setUnavailable(p.set, unavailable)
	return p.nextWithin(updatable, maxUnavailableOf(p.set)-unavailable)
}

// nextWithin chooses old pods within budget, the number of pods that may become
// unavailable; it is negative when more are than may be.
func (p *pass) nextWithin(updatable []member, budget int) []*v1.Pod {
	var next []*v1.Pod
	monotonic := isMonotonic(p.set)
	if !monotonic {
		// Replacing a pod that is of no use costs nothing. To wait for it may
		// be in vain: the new template may be what it lacks.
		for _, member := range updatable {
			if p.isReplaceable(member.Pod) && !p.isAvailable(member.Pod) {
				next = append(next, member.Pod)
			}
		}
	}
	for _, member := range updatable {
		if budget <= 0 {
			break
		}
		if p.isReplaceable(member.Pod) && (monotonic || p.isAvailable(member.Pod)) {
			next = append(next, member.Pod)
			budget--
		}
	}
	return next
}

// nextOne chooses one pod at a time, and none while a younger one is not available.
func (p *pass) nextOne(updatable []member) []*v1.Pod {
	next := p.ordinals.last
	for _, member := range updatable {
		if member.ordinal != next {
			return nil // the one between is missing
		}
		next--
		if p.isReplaceable(member.Pod) {
			return []*v1.Pod{member.Pod}
		}
		if p.isUnavailable(member.Pod) {
			return nil
		}
	}
	return nil
}

// isReplaceable tells whether pod is old and not on its way out yet.
func (p *pass) isReplaceable(pod *v1.Pod) bool { return p.isOld(pod) && pod.DeletionTimestamp == nil }

// maxUnavailableOf is how many pods may be unavailable during a rolling update:
// a percentage of spec.replicas rounded down, but at least one pod. The default
// is one pod, also for what is neither a number nor a percentage, which the API
// server refuses.
func maxUnavailableOf(set *appsv1.StatefulSet) int {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil {
		return 1
	}
	scaled, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, replicasOf(set), false)
	if err != nil {
		return 1
	}
	return max(scaled, 1)
}
