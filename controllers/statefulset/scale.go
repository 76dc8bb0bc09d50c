package statefulset

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/slowstart"
)

// burst bounds how many missing pods one reconcile of a parallel set creates.
// The pods' events bring the set back for the rest.
const burst = 500

// slot is an ordinal that the set asks for, with its pod, nil if there is none.
type slot struct {
	ordinal int
	pod     *v1.Pod
}

// step does what is to be done about one slot. stop is true if all later ones
// of an ordered set must wait for it.
type step func(ctx context.Context, s slot) (stop bool, err error)

// scale sees to the pods that the set asks for, and deletes the others. It
// returns true if a pod must be waited for before anything else is done.
func (p *pass) scale(ctx context.Context) (stopped bool, err error) {
	condemned := make([]slot, 0, len(p.members))
	for _, member := range p.condemned() {
		condemned = append(condemned, slot{member.ordinal, member.Pod})
	}
	if stopped, err := p.each(ctx, p.slots(), p.tend); err != nil || stopped {
		return stopped, err
	}
	// All of them before the first deletion: a claim whose pod is gone has no owner to go with.
	if stopped, err := p.each(ctx, condemned, p.release); err != nil || stopped {
		return stopped, err
	}
	return p.each(ctx, condemned, p.remove)
}

// slots are the ordinals that the set asks for, in ascending order: those of an
// ordered set up to the first missing pod, those of a parallel one without all
// missing pods beyond burst.
func (p *pass) slots() []slot {
	replicas := p.replicas()
	slots := make([]slot, 0, len(replicas)+1)
	missing := 0
	for ordinal := p.ordinals.first; ordinal <= p.ordinals.last && missing < burst; ordinal++ {
		if len(replicas) > 0 && replicas[0].ordinal == ordinal {
			slots = append(slots, slot{ordinal, replicas[0].Pod})
			replicas = replicas[1:]
			continue
		}
		slots = append(slots, slot{ordinal: ordinal})
		missing++
		if isMonotonic(p.set) {
			return slots
		}
	}
	for _, member := range replicas {
		slots = append(slots, slot{member.ordinal, member.Pod})
	}
	return slots
}

// each takes the step for one slot after the other until one stops, if the set
// is ordered. If it is parallel, stops are ignored, and the steps are taken in
// growing batches until one fails.
func (p *pass) each(ctx context.Context, slots []slot, do step) (stopped bool, err error) {
	if !isMonotonic(p.set) {
		_, err := slowstart.Run(ctx, len(slots), func(ctx context.Context, i int) error {
			_, err := do(ctx, slots[i])
			return err
		})
		return false, err
	}
	for _, slot := range slots {
		if stop, err := do(ctx, slot); err != nil || stop {
			return stop, err
		}
	}
	return false, nil
}

// tend brings a slot to a pod that is available and has its identity and claims.
func (p *pass) tend(ctx context.Context, s slot) (stop bool, err error) {
	pod := s.pod
	switch {
	case pod == nil:
		return true, p.createPod(ctx, s.ordinal)
	case availability.IsTerminal(pod):
		if pod.DeletionTimestamp == nil {
			err = p.deletePod(ctx, pod)
		}
		return true, err
	case pod.Status.Phase == v1.PodPending && pod.DeletionTimestamp == nil:
		return true, p.tendPending(ctx, s)
	case isMonotonic(p.set) && (pod.DeletionTimestamp != nil || !isReady(pod) || !p.isAvailable(pod)):
		return true, nil
	}
	if err := p.settleClaims(ctx, pod, s.ordinal); err != nil {
		return false, p.updateFailed(ctx, pod, err)
	}
	return false, p.updatePod(ctx, pod, s.ordinal)
}

// tendPending gives a pod that cannot run yet the claims that it may lack. An
// ordered set does no more about it.
func (p *pass) tendPending(ctx context.Context, s slot) error {
	if err := p.createClaims(ctx, s.ordinal); err != nil {
		return err
	}
	if err := p.alignClaims(ctx, s.pod, s.ordinal); err != nil || isMonotonic(p.set) {
		return err
	}
	return p.updatePod(ctx, s.pod, s.ordinal)
}

// release makes the claims of a condemned pod go with it, or stay, as the retention policy has it.
func (p *pass) release(ctx context.Context, s slot) (stop bool, err error) {
	return false, p.settleClaims(ctx, s.pod, s.ordinal)
}

// remove deletes a condemned pod. In an ordered set that waits for the ones
// above to be gone, and for the pod to be available, unless it is the lowest
// one that is not: nothing below waits for it.
func (p *pass) remove(ctx context.Context, s slot) (stop bool, err error) {
	switch {
	case s.pod.DeletionTimestamp != nil:
		return true, nil
	case isMonotonic(p.set) && !(isReady(s.pod) && p.isAvailable(s.pod)) && p.unavailableBelow(s.ordinal):
		return true, nil
	}
	return true, p.deletePod(ctx, s.pod)
}

// unavailableBelow tells whether a pod that the set asks for, or a condemned
// one below ordinal, is missing or unavailable.
func (p *pass) unavailableBelow(ordinal int) bool {
	replicas := p.replicas()
	if len(replicas) < p.ordinals.count() {
		return true
	}
	for _, member := range p.members {
		if (p.ordinals.contain(member.ordinal) || member.ordinal < ordinal) && p.isUnavailable(member.Pod) {
			return true
		}
	}
	return false
}
