package job

import (
	"math"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// completionIndex of a pod, and false if it does not name one below completions.
func completionIndex(pod *v1.Pod, completions int) (int, bool) {
	index, ok := parseIndex(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return index, ok && index < completions
}

// failureCount is how often the pod's index had failed before, and counted.
func failureCount(pod *v1.Pod) int32 {
	return parseCount(pod.Annotations[batchv1.JobIndexFailureCountAnnotation])
}

// ignoredFailureCount is how often the pod's index had failed before without
// being counted.
func ignoredFailureCount(pod *v1.Pod) int32 {
	return parseCount(pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation])
}

// parseCount takes anything but a number that a counter may have for 0: the
// annotation is not protected from users.
func parseCount(text string) int32 {
	count, err := strconv.ParseInt(text, 10, 32)
	if err != nil || count < 0 {
		return 0
	}
	return int32(count)
}

// increased stays where it is at the largest count that can be read back.
func increased(count int32) int32 {
	if count == math.MaxInt32 {
		return count
	}
	return count + 1
}
