package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// state of a Job and its pods, as the caches show it. All that is decided about
// a Job is decided from it, without looking at anything else.
type state struct {
	job *batchv1.Job
	// pods are the Job's. They are a cache's and must not be changed.
	pods []*v1.Pod
	// tracked are the UIDs of all pods that hold the Job's finalizer, the
	// Job's own and those that it has lost just now.
	tracked map[types.UID]bool
	now     time.Time
	// start is since when the Job is active: with this reconcile, if it was
	// suspended before or is new; nil while it is suspended.
	start *metav1.Time

	indexed  bool
	perIndex bool
	// completions is the number of indexes of an Indexed Job.
	completions int

	active, terminating []*v1.Pod
	ready               int
	// listed are the pods that status.uncountedTerminatedPods has already.
	listed map[types.UID]bool
	// finished are the pods that no status has counted so far.
	finished []*v1.Pod
	// succeeded and failed pods, counted or not.
	succeeded, failed int
	// completedIndexes and failedIndexes are those of the status and of finished.
	completedIndexes, failedIndexes indexSet
	// matches are what the pod failure policy says of failed pods.
	matches map[types.UID]policyMatch
}

func newState(job *batchv1.Job, pods []*v1.Pod, tracked map[types.UID]bool, now time.Time) *state {
	s := &state{
		job:      job,
		pods:     pods,
		tracked:  tracked,
		now:      now,
		indexed:  ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion,
		perIndex: job.Spec.BackoffLimitPerIndex != nil,
		listed:   map[types.UID]bool{},
		matches:  map[types.UID]policyMatch{},
	}
	if !s.suspended() {
		s.start = job.Status.StartTime
		if s.start == nil || trueCondition(&job.Status, batchv1.JobSuspended) != nil {
			s.start = ptr.To(metav1.NewTime(now))
		}
	}
	if s.indexed {
		s.completions = int(ptr.Deref(job.Spec.Completions, 0))
	}
	for _, pod := range pods {
		switch {
		case availability.IsActive(pod):
			s.active = append(s.active, pod)
			if availability.IsReady(pod) {
				s.ready++
			}
		case availability.IsTerminating(pod):
			s.terminating = append(s.terminating, pod)
		}
	}
	s.count()
	if s.indexed {
		s.countIndexes()
	}
	return s
}

// count finds the pods that have finished without having been counted. A pod
// that is in either list is not among them, whatever has become of it since.
func (s *state) count() {
	status := &s.job.Status
	s.succeeded, s.failed = int(status.Succeeded), int(status.Failed)
	if uncounted := status.UncountedTerminatedPods; uncounted != nil {
		s.succeeded += len(uncounted.Succeeded)
		s.failed += len(uncounted.Failed)
		for _, uid := range slices.Concat(uncounted.Succeeded, uncounted.Failed) {
			s.listed[uid] = true
		}
	}
	for _, pod := range s.pods {
		if !hasFinalizer(pod) {
			continue
		}
		failed := s.hasFailed(pod)
		if failed {
			s.matches[pod.UID] = matchFailurePolicy(s.job.Spec.PodFailurePolicy, pod)
		}
		if s.listed[pod.UID] || s.indexed && !s.hasIndex(pod) {
			continue
		}
		switch {
		case pod.Status.Phase == v1.PodSucceeded:
			s.succeeded++
		case failed:
			if s.matches[pod.UID].counts() {
				s.failed++
			}
		default:
			continue
		}
		s.finished = append(s.finished, pod)
	}
}

// countIndexes never puts an index into both sets, which the API refuses: what
// is in the status already wins, and of new ones the completed.
func (s *state) countIndexes() {
	completedBefore, _ := parseIndexes(s.job.Status.CompletedIndexes, s.completions)
	var failedBefore indexSet
	if s.perIndex && s.job.Status.FailedIndexes != nil {
		failedBefore, _ = parseIndexes(*s.job.Status.FailedIndexes, s.completions)
	}
	// Pods that are killed because the end is announced fail no index.
	announced := trueCondition(&s.job.Status, batchv1.JobFailureTarget) != nil ||
		trueCondition(&s.job.Status, batchv1.JobSuccessCriteriaMet) != nil
	var completed, failed []int
	for _, pod := range s.pods {
		index, ok := completionIndex(pod, s.completions)
		if !ok || !hasFinalizer(pod) {
			continue
		}
		switch {
		case pod.Status.Phase == v1.PodSucceeded:
			if !failedBefore.has(index) && !s.listedAsFailed(pod) {
				completed = append(completed, index)
			}
		case s.perIndex && s.hasFailed(pod) && s.failsIndex(pod) && !(announced && pod.DeletionTimestamp != nil):
			failed = append(failed, index)
		}
	}
	s.completedIndexes = completedBefore.with(completed)
	failed = slices.DeleteFunc(failed, s.completedIndexes.has)
	s.failedIndexes = failedBefore.with(failed)
	s.succeeded = s.completedIndexes.count()
}

// failsIndex tells whether the failure of pod is the last that its index may have.
func (s *state) failsIndex(pod *v1.Pod) bool {
	match := s.matches[pod.UID]
	return match.action == batchv1.PodFailurePolicyActionFailIndex ||
		match.counts() && failureCount(pod) >= *s.job.Spec.BackoffLimitPerIndex
}

// hasFailed tells whether pod has not succeeded and will not: a pod that is
// being deleted may be taken for failed before it has ended.
func (s *state) hasFailed(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed ||
		!s.waitsForTermination() && pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodSucceeded
}

// killedBySuccess tells whether pod goes because the success is announced.
func (s *state) killedBySuccess(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodFailed &&
		trueCondition(&s.job.Status, batchv1.JobSuccessCriteriaMet) != nil
}

// waitsForTermination tells whether a pod is replaced only when it has ended.
func (s *state) waitsForTermination() bool {
	return ptr.Deref(s.job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed
}

func (s *state) hasIndex(pod *v1.Pod) bool {
	_, ok := completionIndex(pod, s.completions)
	return ok
}

func (s *state) listedAsFailed(pod *v1.Pod) bool {
	uncounted := s.job.Status.UncountedTerminatedPods
	return s.listed[pod.UID] && slices.Contains(uncounted.Failed, pod.UID)
}

func (s *state) suspended() bool { return ptr.Deref(s.job.Spec.Suspend, false) }

// completed tells whether the Job has all the completions it wants, when active
// pods are left.
func (s *state) completed(active int) bool {
	if active > 0 {
		return false
	}
	if s.job.Spec.Completions == nil {
		return s.succeeded > 0
	}
	return s.succeeded >= int(*s.job.Spec.Completions)
}

// stuck are the pods whose deletion has to be requested again, and checkIn is
// when there may be one more, 0 if there cannot be.
func (s *state) stuck() (stuck []*v1.Pod, checkIn time.Duration) {
	for _, pod := range s.terminating {
		again, wait := podcontrol.DeletionStuck(pod, s.now)
		if again {
			stuck = append(stuck, pod)
		}
		checkIn = work.Soonest(checkIn, wait)
	}
	return stuck, checkIn
}

// counted are the finished pods that a status has counted and that are still
// there, without those that the controller has given up by itself. They tell
// what the back-off was to one who does not know it.
func (s *state) counted() []*v1.Pod {
	var counted []*v1.Pod
	for _, pod := range s.pods {
		if (!hasFinalizer(pod) || s.listed[pod.UID]) && availability.IsTerminal(pod) && pod.DeletionTimestamp == nil {
			counted = append(counted, pod)
		}
	}
	return counted
}

// lastFailures returns, per index that is neither completed, failed nor among
// busy, the pod that its replacement takes over from: the one with the most
// failures behind it, then the last to fail. These pods are held back from
// being counted until they are replaced, since their annotations say how often
// the index has failed.
func (s *state) lastFailures(busy map[int]bool) map[int]*v1.Pod {
	if !s.perIndex {
		return nil
	}
	last := map[int]*v1.Pod{}
	for _, pod := range s.pods {
		index, ok := completionIndex(pod, s.completions)
		if !ok || !hasFinalizer(pod) || !s.hasFailed(pod) || busy[index] ||
			s.completedIndexes.has(index) || s.failedIndexes.has(index) {
			continue
		}
		if before := last[index]; before == nil || compareFailures(before, pod) < 0 {
			last[index] = pod
		}
	}
	return last
}

func compareFailures(a, b *v1.Pod) int {
	behind := func(pod *v1.Pod) int64 { return int64(failureCount(pod)) + int64(ignoredFailureCount(pod)) }
	if before, after := behind(a), behind(b); before != after {
		return int(max(-1, min(1, before-after)))
	}
	return finishTime(a).Compare(finishTime(b))
}

// activeIndexes are the indexes of the active pods.
func (s *state) activeIndexes() map[int]bool {
	busy := map[int]bool{}
	for _, pod := range s.active {
		if index, ok := completionIndex(pod, s.completions); ok {
			busy[index] = true
		}
	}
	return busy
}

func hasFinalizer(pod *v1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}
