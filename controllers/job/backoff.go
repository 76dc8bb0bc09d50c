package job

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

// A failed pod is replaced after 10 s, and each further failure doubles the
// time, up to 10 minutes (KEP-3850, and the documentation of Jobs).
const (
	podBackOffMin = 10 * time.Second
	podBackOffMax = 10 * time.Minute
)

// backOff counts the pods of a Job that have failed since one succeeded.
type backOff struct {
	uid      types.UID
	failures int
	// last is when the last of them failed.
	last time.Time
	// seen are the pods that the record has, of those that were last added:
	// if the finalizer cannot be removed they are found again.
	seen map[types.UID]bool
}

// after returns the record after pods have finished too. A success begins it
// anew; failures at the same instant as the success or before are forgotten.
func (b backOff) after(finished []*v1.Pod) backOff {
	seen := make(map[types.UID]bool, len(finished))
	for _, pod := range finished {
		seen[pod.UID] = true
	}
	finished = b.unseen(finished)
	b.seen = seen
	var success time.Time
	for _, pod := range finished {
		if at := finishTime(pod); pod.Status.Phase == v1.PodSucceeded && at.After(success) {
			success = at
		}
	}
	if !success.IsZero() {
		b = backOff{uid: b.uid, seen: seen}
	}
	for _, pod := range finished {
		if pod.Status.Phase == v1.PodSucceeded {
			continue
		}
		if at := finishTime(pod); success.IsZero() || at.After(success) {
			b.failures++
			if at.After(b.last) {
				b.last = at
			}
		}
	}
	return b
}

// unseen are those of finished that the record does not have.
func (b backOff) unseen(finished []*v1.Pod) []*v1.Pod {
	unseen := make([]*v1.Pod, 0, len(finished))
	for _, pod := range finished {
		if !b.seen[pod.UID] {
			unseen = append(unseen, pod)
		}
	}
	return unseen
}

// by returns the record with nothing in it that is later than now. Where the
// clock of a node is ahead, a pod that has ended would end in future.
func (b backOff) by(now time.Time) backOff {
	if b.last.After(now) {
		b.last = now
	}
	return b
}

// wait is how long no pod may be created after now; not positive if one may.
func (b backOff) wait(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	return podBackOff(b.failures) - now.Sub(b.last)
}

// indexWait is how long the index that failed last with pod must wait.
func indexWait(pod *v1.Pod, now time.Time) time.Duration {
	failures := int(failureCount(pod)) + int(ignoredFailureCount(pod)) + 1
	return podBackOff(failures) - now.Sub(finishTime(pod))
}

func podBackOff(failures int) time.Duration {
	wait := podBackOffMin
	for range failures - 1 {
		if wait *= 2; wait >= podBackOffMax {
			return podBackOffMax
		}
	}
	return wait
}

// finishTime is the best that the API tells about when a pod ended: when its
// last container did, when it was not ready any more, when its deletion was
// asked for, when it was created.
func finishTime(pod *v1.Pod) time.Time {
	if at, ok := containersFinished(pod); ok {
		return at
	}
	if ready := availability.ReadyCondition(pod); ready != nil && ready.Status == v1.ConditionFalse && !ready.LastTransitionTime.IsZero() {
		return ready.LastTransitionTime.Time
	}
	if pod.DeletionTimestamp != nil {
		grace := time.Duration(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = seconds(*pod.DeletionGracePeriodSeconds)
		}
		return pod.DeletionTimestamp.Add(-grace)
	}
	return pod.CreationTimestamp.Time
}

// containersFinished is when the last container ended, if all have: those that
// run to the end, and the restartable init containers beside them.
func containersFinished(pod *v1.Pod) (time.Time, bool) {
	finished := map[string]time.Time{}
	for _, statuses := range [][]v1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if ended := statuses[i].State.Terminated; ended != nil {
				finished[statuses[i].Name] = ended.FinishedAt.Time
			}
		}
	}
	var last time.Time
	note := func(container string) bool {
		at := finished[container]
		if at.After(last) {
			last = at
		}
		return !at.IsZero()
	}
	for i := range pod.Spec.Containers {
		if !note(pod.Spec.Containers[i].Name) {
			return time.Time{}, false
		}
	}
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		restartable := container.RestartPolicy != nil && *container.RestartPolicy == v1.ContainerRestartPolicyAlways
		if restartable && !note(container.Name) {
			return time.Time{}, false
		}
	}
	return last, !last.IsZero()
}
