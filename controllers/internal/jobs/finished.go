// Package jobs knows the states of a Job, for all controllers that deal with Jobs.
package jobs

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Finished returns the condition by which a Job has completed or failed for
// good, nil while it has not: the first in the order of the list, should an old
// API server have let both be true. SuccessCriteriaMet and FailureTarget only
// announce the end, while pods may still be terminating.
func Finished(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		final := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed
		if final && condition.Status == corev1.ConditionTrue {
			return condition
		}
	}
	return nil
}
