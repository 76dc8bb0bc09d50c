package statefulset

import (
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
)

// splitName returns the set and the ordinal that the name of a pod, or of a
// claim, ends with. False if it has no ordinal, or one that no pod of a set is
// given: with leading zeros, or beyond 32 bits.
func splitName(name string) (parent string, ordinal int, ok bool) {
	dash := strings.LastIndexByte(name, '-')
	if dash < 0 {
		return "", 0, false
	}
	number, err := strconv.ParseInt(name[dash+1:], 10, 32)
	if err != nil || number < 0 || strconv.FormatInt(number, 10) != name[dash+1:] {
		return "", 0, false
	}
	return name[:dash], int(number), true
}

// nameOf returns the name of the set's pod with ordinal.
func nameOf(set string, ordinal int) string { return set + "-" + strconv.Itoa(ordinal) }

// ordinals are those that a set asks for, from first to last; none if last is less.
type ordinals struct{ first, last int }

func ordinalsOf(set *appsv1.StatefulSet) ordinals {
	first := 0
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	return ordinals{first: first, last: min(first+replicasOf(set)-1, math.MaxInt32)}
}

func (o ordinals) contain(ordinal int) bool { return o.first <= ordinal && ordinal <= o.last }

func (o ordinals) count() int { return o.last - o.first + 1 }

// replicasOf is spec.replicas, whose default is 1.
func replicasOf(set *appsv1.StatefulSet) int { return int(ptr.Deref(set.Spec.Replicas, 1)) }

// partitionOf is the ordinal below which a rolling update leaves pods alone.
func partitionOf(set *appsv1.StatefulSet) int {
	first := ordinalsOf(set).first
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		return first + int(ptr.Deref(rolling.Partition, 0))
	}
	return first
}

// isMonotonic tells whether pods are made and removed one after the other.
func isMonotonic(set *appsv1.StatefulSet) bool {
	return set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}
