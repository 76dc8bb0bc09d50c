package availability

import (
	"maps"

	v1 "k8s.io/api/core/v1"
)

// Changed tells whether an update of a pod can make a difference to a
// controller that keeps a number of pods: in its phase, labels, readiness, or
// by the beginning of its deletion. Most updates, such as those of container
// statuses, do not.
func Changed(before, after *v1.Pod) bool {
	return before.Status.Phase != after.Status.Phase ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!maps.Equal(before.Labels, after.Labels) ||
		readiness(before) != readiness(after)
}

type readySince struct {
	ready bool
	since int64
}

// readiness is comparable, unlike the condition.
func readiness(pod *v1.Pod) readySince {
	condition := ReadyCondition(pod)
	if condition == nil || condition.Status != v1.ConditionTrue {
		return readySince{}
	}
	return readySince{ready: true, since: condition.LastTransitionTime.UnixNano()}
}
