package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

// account says which pods the next status counts, and which lose their
// finalizer once it is written.
//
// A pod is counted in two steps, so that a crash between any two requests
// neither loses it nor counts it twice. First a status is written that has its
// UID in uncountedTerminatedPods, or its index in completedIndexes; then the
// finalizer is removed. The UID is turned into a count by a later status, when
// the cache shows that the finalizer is gone: what has no finalizer is never
// looked at again, and what is listed is not counted anew.
type account struct {
	status batchv1.JobStatus
	// release are the pods whose finalizer has done its duty.
	release []*v1.Pod
	// counted are those of state.finished that this status is the first to know.
	counted []*v1.Pod
	// limited is true if finished pods are left for a later status.
	limited bool
	// settled are the numbers of UIDs that became counts.
	settled tally
}

// tally of pods or indexes by result.
type tally struct{ succeeded, failed int }

// account counts pods. busy are the indexes that have an active pod; end is the
// outcome, nil if there is none.
func (s *state) account(end *outcome, busy map[int]bool) account {
	a := account{status: *s.job.Status.DeepCopy()}
	if a.status.UncountedTerminatedPods == nil {
		a.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	a.settled = settle(&a.status, func(uid types.UID) bool { return s.tracked[uid] })

	completedBefore, _ := parseIndexes(s.job.Status.CompletedIndexes, s.completions)
	held := s.lastFailures(busy)
	newIndexes := map[int]bool{}
	for _, pod := range s.inOrder() {
		if !hasFinalizer(pod) || !s.releasable(pod, end, held) {
			continue
		}
		index, hasIndex := completionIndex(pod, s.completions)
		uncounted := a.status.UncountedTerminatedPods
		full := len(newIndexes)+len(uncounted.Succeeded)+len(uncounted.Failed) >= burst
		var list *[]types.UID
		switch {
		case s.listed[pod.UID]:
			// By an earlier status, whatever has become of the pod since.
		case pod.Status.Phase == v1.PodSucceeded && s.indexed:
			if hasIndex && !completedBefore.has(index) && !newIndexes[index] {
				if full {
					a.limited = true
					continue
				}
				newIndexes[index] = true // which is enough
			}
		case pod.Status.Phase == v1.PodSucceeded:
			list = &uncounted.Succeeded
		case !s.hasFailed(pod) && (end == nil || !end.failed), s.killedBySuccess(pod):
			// It was given up, which is no failure.
		case s.matches[pod.UID].counts() && (!s.indexed || hasIndex):
			list = &uncounted.Failed
		}
		if list != nil {
			if full {
				a.limited = true
				continue
			}
			*list = append(*list, pod.UID)
		}
		a.release = append(a.release, pod)
	}
	released := make(map[*v1.Pod]bool, len(a.release))
	for _, pod := range a.release {
		released[pod] = true
	}
	for _, pod := range s.finished {
		if released[pod] {
			a.counted = append(a.counted, pod)
		}
	}
	if s.indexed {
		a.status.Succeeded = int32(s.completedIndexes.count())
		a.status.CompletedIndexes = s.completedIndexes.String()
		if s.perIndex {
			a.status.FailedIndexes = ptr.To(s.failedIndexes.String())
		}
	}
	return a
}

// settle turns the listed UIDs whose pod holds the finalizer no longer into
// counts. For an Indexed Job, the successes are counted by index instead.
func settle(status *batchv1.JobStatus, tracked func(types.UID) bool) tally {
	uncounted := status.UncountedTerminatedPods
	move := func(list *[]types.UID, count *int32) int {
		before := len(*list)
		*list = slices.DeleteFunc(*list, func(uid types.UID) bool { return !tracked(uid) })
		moved := before - len(*list)
		*count += int32(moved)
		return moved
	}
	return tally{
		succeeded: move(&uncounted.Succeeded, &status.Succeeded),
		failed:    move(&uncounted.Failed, &status.Failed),
	}
}

// inOrder returns the pods by index, so that of very many the lowest indexes
// are counted first and completedIndexes stays short.
func (s *state) inOrder() []*v1.Pod {
	if !s.indexed {
		return s.pods
	}
	indexOf := func(pod *v1.Pod) int {
		index, ok := completionIndex(pod, s.completions)
		if !ok {
			return -1
		}
		return index
	}
	indexes := make(map[*v1.Pod]int, len(s.pods))
	for _, pod := range s.pods {
		indexes[pod] = indexOf(pod)
	}
	sorted := slices.Clone(s.pods)
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int { return indexes[a] - indexes[b] })
	return sorted
}

// releasable tells whether nothing else can come of the pod that the Job has to know.
func (s *state) releasable(pod *v1.Pod, end *outcome, held map[int]*v1.Pod) bool {
	if s.job.DeletionTimestamp != nil || end != nil || pod.Status.Phase == v1.PodSucceeded {
		return true
	}
	if !s.hasFailed(pod) {
		return false
	}
	index, ok := completionIndex(pod, s.completions)
	return !ok || held[index] != pod
}

// numbers are how many pods are in each state after what was done about them.
type numbers struct{ active, ready, terminating int }

// numbers returns those of the status: an outcome ends all active pods.
func (s *state) numbers(created, removed, removedReady int, end *outcome) numbers {
	n := numbers{
		active:      len(s.active) + created - removed,
		ready:       s.ready - removedReady,
		terminating: len(s.terminating),
	}
	if end != nil {
		n.terminating += n.active
		n.active, n.ready = 0, 0
	}
	return n
}

// readyOf counts the ready ones of pods.
func readyOf(pods []*v1.Pod) int {
	ready := 0
	for _, pod := range pods {
		if availability.IsReady(pod) {
			ready++
		}
	}
	return ready
}
