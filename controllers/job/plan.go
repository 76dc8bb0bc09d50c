package job

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/deletionorder"
)

// burst bounds how many pods one reconcile creates, removes or counts, and how
// many UIDs the status holds.
const burst = 500

// plan is what is to be done about the number of pods. Either of remove and
// create is empty.
type plan struct {
	remove []*v1.Pod
	// create has one entry for each pod to be created.
	create []creation
	// wait is when pods that may not be created yet may be; 0 if there are none.
	wait time.Duration
}

// creation of one pod.
type creation struct {
	// index of an Indexed Job.
	index int
	// replaces is the pod whose failures are handed on, or nil.
	replaces *v1.Pod
}

// plan compares the active pods with the wanted ones. The record says how long
// a Job without a limit per index has to wait.
func (s *state) plan(record backOff) plan {
	if s.suspended() {
		return plan{remove: s.active}
	}
	wanted := s.wanted()
	if victims := s.victims(wanted); len(victims) > 0 {
		return plan{remove: victims[:min(len(victims), burst)]}
	}
	missing := wanted - len(s.active)
	if s.waitsForTermination() {
		missing -= len(s.terminating)
	}
	if missing <= 0 {
		return plan{}
	}
	if !s.perIndex {
		if wait := record.wait(s.now); wait > 0 {
			return plan{wait: wait}
		}
	}
	missing = min(missing, burst)
	if !s.indexed {
		return plan{create: make([]creation, missing)}
	}
	return s.creations(missing)
}

// wanted is how many pods should be active. Without a number of completions,
// a success means that the others are to finish by themselves.
func (s *state) wanted() int {
	parallelism := int(ptr.Deref(s.job.Spec.Parallelism, 1))
	if s.job.Spec.Completions == nil {
		if s.succeeded > 0 {
			return len(s.active)
		}
		return parallelism
	}
	return max(0, min(parallelism, int(*s.job.Spec.Completions)-s.succeeded))
}

// victims are the active pods to be removed: of an Indexed Job those without a
// valid index and all but one of each index, even if there are not too many;
// then the most expendable ones.
func (s *state) victims(wanted int) []*v1.Pod {
	var victims []*v1.Pod
	rest := s.active
	if s.indexed {
		victims, rest = s.misplaced()
	}
	surplus := len(rest) - wanted
	if surplus <= 0 {
		return victims
	}
	// A pod without the finalizer was to be removed already.
	var tracked []*v1.Pod
	for _, pod := range deletionorder.Plain(rest) {
		if hasFinalizer(pod) {
			tracked = append(tracked, pod)
			continue
		}
		if surplus > 0 {
			victims = append(victims, pod)
			surplus--
		}
	}
	return append(victims, tracked[:min(surplus, len(tracked))]...)
}

// misplaced separates the active pods that no number of wanted pods justifies.
func (s *state) misplaced() (misplaced, rest []*v1.Pod) {
	keeper := map[int]*v1.Pod{}
	ordered := deletionorder.Plain(s.active)
	for _, pod := range ordered {
		if index, ok := completionIndex(pod, s.completions); ok {
			keeper[index] = pod // the last is the least expendable
		}
	}
	for _, pod := range ordered {
		if index, ok := completionIndex(pod, s.completions); ok && keeper[index] == pod {
			rest = append(rest, pod)
		} else {
			misplaced = append(misplaced, pod)
		}
	}
	return misplaced, rest
}

// creations are those of the lowest free indexes, as far as these need not wait.
func (s *state) creations(missing int) plan {
	busy := s.activeIndexes()
	if s.waitsForTermination() {
		for _, pod := range s.terminating {
			if index, ok := completionIndex(pod, s.completions); ok {
				busy[index] = true
			}
		}
	}
	last := s.lastFailures(busy)
	var p plan
	shortest := time.Duration(math.MaxInt64)
	free := 0
	for index := 0; index < s.completions && free < missing; index++ {
		// Whole intervals are skipped: there may be very many completions.
		if end, ok := s.completedIndexes.find(index); ok {
			index = end
			continue
		}
		if busy[index] || s.failedIndexes.has(index) {
			continue
		}
		free++
		if failed := last[index]; failed != nil {
			if wait := indexWait(failed, s.now); wait > 0 {
				shortest = min(shortest, wait)
				continue
			}
		}
		p.create = append(p.create, creation{index: index, replaces: last[index]})
	}
	if shortest < math.MaxInt64 {
		p.wait = shortest
	}
	return p
}
