// Package deletionorder sorts pods by how little they would be missed, so that
// a controller that has too many deletes the least useful ones.
package deletionorder

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

// Ranked returns a copy of pods, the one to be deleted first in front. The
// first difference decides:
//
//  1. no node before a node
//  2. phase Pending before Unknown before Running
//  3. not ready before ready
//  4. lower deletion cost, if useCost
//  5. higher rank
//  6. ready for less time, in powers of two; within the same power the lower UID
//  7. more restarts of a container, then of a restartable init container
//  8. created more recently, in powers of two; within the same power the lower UID
//  9. lower UID
//
// rank is usually the number of like pods on the pod's node, so that those that
// are left are spread. Times are compared by their power of two so that pods of
// about the same age are chosen among at random; a missing time counts as newest.
func Ranked(pods []*v1.Pod, rank func(*v1.Pod) int, now time.Time, useCost bool) []*v1.Pod {
	return sorted(pods, func(pod *v1.Pod) traits {
		t := traitsOf(pod)
		t.rank = rank(pod)
		if useCost {
			t.cost = Cost(pod)
		}
		return t
	}, func(a, b traits) int { return compareRanked(a, b, now) })
}

// Plain returns a copy of pods in an order without costs and ranks: no node,
// phase and not ready as in Ranked, then ready most recently, more restarts,
// created most recently, lower UID.
func Plain(pods []*v1.Pod) []*v1.Pod {
	return sorted(pods, traitsOf, comparePlain)
}

// Cost returns the pod's deletion cost: the annotation
// controller.kubernetes.io/pod-deletion-cost, 0 if there is none or it is not
// a 32-bit decimal number without plus sign and leading zeros.
func Cost(pod *v1.Pod) int32 {
	text := pod.Annotations[v1.PodDeletionCost]
	if text != "0" && (text == "" || text[0] != '-' && (text[0] < '1' || text[0] > '9')) {
		return 0
	}
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// traits are what two pods are compared by, read once per pod.
type traits struct {
	pod             *v1.Pod
	onNode          bool
	phase           int
	ready           bool
	readyAt         time.Time
	cost            int32
	rank            int
	restarts        int32
	sidecarRestarts int32
	createdAt       time.Time
}

func traitsOf(pod *v1.Pod) traits {
	t := traits{
		pod:       pod,
		onNode:    pod.Spec.NodeName != "",
		phase:     phaseOrder(pod.Status.Phase),
		createdAt: pod.CreationTimestamp.Time,
	}
	if ready := availability.ReadyCondition(pod); ready != nil && ready.Status == v1.ConditionTrue {
		t.ready = true
		t.readyAt = ready.LastTransitionTime.Time
	}
	for _, status := range pod.Status.ContainerStatuses {
		t.restarts = max(t.restarts, status.RestartCount)
	}
	if len(pod.Status.InitContainerStatuses) > 0 {
		t.sidecarRestarts = sidecarRestarts(pod)
	}
	return t
}

// sidecarRestarts returns the most restarts of an init container that runs
// beside the others.
func sidecarRestarts(pod *v1.Pod) int32 {
	var most int32
	for _, status := range pod.Status.InitContainerStatuses {
		restartable := slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool {
			return c.Name == status.Name && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		})
		if restartable {
			most = max(most, status.RestartCount)
		}
	}
	return most
}

// phaseOrder of finished pods is that of running ones; callers have sorted
// them out.
func phaseOrder(phase v1.PodPhase) int {
	switch phase {
	case v1.PodPending, "":
		return 0
	case v1.PodUnknown:
		return 1
	default:
		return 2
	}
}

func sorted(pods []*v1.Pod, read func(*v1.Pod) traits, compare func(a, b traits) int) []*v1.Pod {
	all := make([]traits, len(pods))
	for i, pod := range pods {
		all[i] = read(pod)
	}
	// The powers of two together with UIDs are not transitive in every corner;
	// a merge sort keeps its bounds with any comparison.
	slices.SortStableFunc(all, compare)
	out := make([]*v1.Pod, len(all))
	for i := range all {
		out[i] = all[i].pod
	}
	return out
}

func compareState(a, b traits) int {
	return cmp.Or(
		falseFirst(a.onNode, b.onNode),
		cmp.Compare(a.phase, b.phase),
		falseFirst(a.ready, b.ready),
	)
}

func compareRestarts(a, b traits) int {
	return cmp.Or(
		cmp.Compare(b.restarts, a.restarts),
		cmp.Compare(b.sidecarRestarts, a.sidecarRestarts),
	)
}

func compareRanked(a, b traits, now time.Time) int {
	if c := cmp.Or(compareState(a, b), cmp.Compare(a.cost, b.cost), cmp.Compare(b.rank, a.rank)); c != 0 {
		return c
	}
	if c := compareAge(a, b, a.readyAt, b.readyAt, now); a.ready && c != 0 {
		return c
	}
	return cmp.Or(compareRestarts(a, b), compareAge(a, b, a.createdAt, b.createdAt, now), compareUID(a, b))
}

func comparePlain(a, b traits) int {
	return cmp.Or(
		compareState(a, b),
		newestFirst(a.readyAt, b.readyAt), // both zero unless both are ready
		compareRestarts(a, b),
		newestFirst(a.createdAt, b.createdAt),
		compareUID(a, b),
	)
}

// compareUID makes a choice among equals that is the same when it is repeated,
// whatever order the index lists them in.
func compareUID(a, b traits) int { return cmp.Compare(a.pod.UID, b.pod.UID) }

// compareAge puts the younger of two times first, measured in powers of two
// of nanoseconds before now; those of the same power go by UID.
func compareAge(a, b traits, timeA, timeB, now time.Time) int {
	switch {
	case timeA.Equal(timeB):
		return 0
	case timeA.IsZero() || timeB.IsZero():
		return newestFirst(timeA, timeB)
	}
	return cmp.Or(
		cmp.Compare(magnitude(now.Sub(timeA)), magnitude(now.Sub(timeB))),
		compareUID(a, b),
	)
}

// magnitude is the binary logarithm of age in nanoseconds, rounded down; -1
// for an age that is not positive.
func magnitude(age time.Duration) int {
	if age <= 0 {
		return -1
	}
	return bits.Len64(uint64(age)) - 1
}

func newestFirst(a, b time.Time) int {
	switch {
	case a.Equal(b):
		return 0
	case a.IsZero():
		return -1
	case b.IsZero():
		return 1
	default:
		return b.Compare(a)
	}
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
