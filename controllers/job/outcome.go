package job

import (
	"fmt"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Messages of the conditions that end a Job.
const (
	messageBackoffLimit     = "Job has reached the specified backoff limit"
	messageDeadline         = "Job was active longer than specified deadline"
	messageMaxFailedIndexes = "Job has exceeded the specified maximal number of failed indexes"
	messageFailedIndexes    = "Job has failed indexes"
	messageCompletions      = "Reached expected number of succeeded pods"
	messageSuccessPolicy    = "Matched rules at index %d"
)

// outcome is how a Job ends, decided once and for all.
type outcome struct {
	failed          bool
	reason, message string
}

// target is the condition that announces the outcome.
func (o *outcome) target() batchv1.JobConditionType {
	if o.failed {
		return batchv1.JobFailureTarget
	}
	return batchv1.JobSuccessCriteriaMet
}

// final is the condition that the Job has when all its pods have terminated.
func (o *outcome) final() batchv1.JobConditionType {
	if o.failed {
		return batchv1.JobFailed
	}
	return batchv1.JobComplete
}

func failure(reason, message string) *outcome {
	return &outcome{failed: true, reason: reason, message: message}
}

// decide returns the outcome, nil while there is none. What was announced
// stays. Reaching the number of completions is not decided here, since active
// pods may have to be removed before.
func (s *state) decide() *outcome {
	if met := trueCondition(&s.job.Status, batchv1.JobSuccessCriteriaMet); met != nil {
		return &outcome{reason: met.Reason, message: met.Message}
	}
	if target := trueCondition(&s.job.Status, batchv1.JobFailureTarget); target != nil {
		return failure(target.Reason, target.Message)
	}
	for _, pod := range s.pods {
		if match := s.matches[pod.UID]; match.action == batchv1.PodFailurePolicyActionFailJob {
			return failure(batchv1.JobReasonPodFailurePolicy, match.message)
		}
	}
	if limit := int(ptr.Deref(s.job.Spec.BackoffLimit, 6)); s.failed > limit || s.restartedTooOften(limit) {
		return failure(batchv1.JobReasonBackoffLimitExceeded, messageBackoffLimit)
	}
	if left, limited := s.untilDeadline(); limited && left <= 0 {
		return failure(batchv1.JobReasonDeadlineExceeded, messageDeadline)
	}
	if s.perIndex {
		failed := s.failedIndexes.count()
		if most := s.job.Spec.MaxFailedIndexes; most != nil && failed > int(*most) {
			return failure(batchv1.JobReasonMaxFailedIndexesExceeded, messageMaxFailedIndexes)
		}
		if failed > 0 && failed+s.succeeded >= s.completions {
			return failure(batchv1.JobReasonFailedIndexes, messageFailedIndexes)
		}
	}
	if s.indexed {
		if rule, met := matchSuccessPolicy(s.job.Spec.SuccessPolicy, s.completedIndexes, s.completions); met {
			return &outcome{reason: batchv1.JobReasonSuccessPolicy, message: fmt.Sprintf(messageSuccessPolicy, rule)}
		}
	}
	return nil
}

// restartedTooOften tells whether the containers of pods that are restarted in
// place have used up the limit.
func (s *state) restartedTooOften(limit int) bool {
	if s.job.Spec.Template.Spec.RestartPolicy != v1.RestartPolicyOnFailure {
		return false
	}
	restarts := 0
	for _, pod := range s.pods {
		if pod.Status.Phase == v1.PodRunning || pod.Status.Phase == v1.PodPending {
			restarts += restartCount(pod)
		}
	}
	if limit == 0 {
		return restarts > 0
	}
	return restarts >= limit
}

func restartCount(pod *v1.Pod) int {
	restarts := 0
	for _, statuses := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			restarts += int(statuses[i].RestartCount)
		}
	}
	return restarts
}

// untilDeadline is how long the Job may be active still, and false if there is
// no limit at present.
func (s *state) untilDeadline() (time.Duration, bool) {
	limit := s.job.Spec.ActiveDeadlineSeconds
	if limit == nil || s.start == nil {
		return 0, false
	}
	return seconds(*limit) - s.now.Sub(s.start.Time), true
}

// seconds of a field that the API leaves unbounded: what no duration can hold
// is longer than anything lasts.
func seconds(count int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(min(count, most)) * time.Second
}

// trueCondition returns the condition of that type if it is true.
func trueCondition(status *batchv1.JobStatus, of batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == of && c.Status == v1.ConditionTrue {
			return c
		}
	}
	return nil
}
