package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// appendCondition adds a true condition, unless there is one of that type that is true.
func appendCondition(status *batchv1.JobStatus, of batchv1.JobConditionType, reason, message string, now time.Time) {
	if trueCondition(status, of) == nil {
		status.Conditions = append(status.Conditions, newCondition(of, v1.ConditionTrue, reason, message, now))
	}
}

func newCondition(of batchv1.JobConditionType, is v1.ConditionStatus, reason, message string, now time.Time) batchv1.JobCondition {
	at := metav1.NewTime(now)
	return batchv1.JobCondition{
		Type:               of,
		Status:             is,
		LastProbeTime:      at,
		LastTransitionTime: at,
		Reason:             reason,
		Message:            message,
	}
}

// Changes of the condition Suspended, which are the events' reasons too.
const (
	eventSuspended = "Suspended"
	eventResumed   = "Resumed"
)

// setSuspended brings the condition Suspended in line with the spec, and
// returns eventSuspended, eventResumed, or nothing if it is so already. A Job
// that was never suspended gets no condition.
func setSuspended(status *batchv1.JobStatus, suspended bool, now time.Time) (changed string) {
	condition := newCondition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", "Job suspended", now)
	changed = eventSuspended
	if !suspended {
		condition = newCondition(batchv1.JobSuspended, v1.ConditionFalse, "JobResumed", "Job resumed", now)
		changed = eventResumed
	}
	for i := range status.Conditions {
		if status.Conditions[i].Type != batchv1.JobSuspended {
			continue
		}
		if status.Conditions[i].Status == condition.Status {
			return ""
		}
		status.Conditions[i] = condition
		return changed
	}
	if !suspended {
		return ""
	}
	status.Conditions = append(status.Conditions, condition)
	return changed
}
