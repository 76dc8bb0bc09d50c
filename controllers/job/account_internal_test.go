package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestPodsAreCounted(t *testing.T) {
	success, failed := &outcome{}, &outcome{failed: true}
	lists := func(succeeded, failed string) func(*batchv1.Job) {
		uids := func(text string) (uids []types.UID) {
			for _, uid := range strings.Fields(text) {
				uids = append(uids, types.UID(uid))
			}
			return uids
		}
		return func(j *batchv1.Job) {
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: uids(succeeded), Failed: uids(failed)}
		}
	}
	perIndex := func(limit int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To(limit) }
	}
	deletingJob := func(j *batchv1.Job) { j.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }
	succeeding := func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{
			newCondition(batchv1.JobSuccessCriteriaMet, v1.ConditionTrue, batchv1.JobReasonSuccessPolicy, "", start)}
	}
	patient := func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }
	runs, done, broken := v1.PodRunning, v1.PodSucceeded, v1.PodFailed
	for _, test := range []struct {
		name string
		job  *batchv1.Job
		pods []*v1.Pod
		end  *outcome
		busy []int
		// want is "SUCCEEDED FAILED [uncounted succeeded] [uncounted failed] released".
		want string
	}{
		{"nothing has ended", testJob(3, 3), []*v1.Pod{testPod("a", runs, -1)}, nil, nil, "0 0 [] [] []"},
		{"one of each", testJob(3, 3), []*v1.Pod{testPod("a", done, -1), testPod("b", broken, -1), testPod("c", runs, -1)}, nil, nil,
			"0 0 [a] [b] [a b]"},
		{"listed already, finalizer still there", changed(testJob(3, 3), lists("a", "b")), []*v1.Pod{testPod("a", done, -1), testPod("b", broken, -1)},
			nil, nil, "0 0 [a] [b] [a b]"},
		{"listed, finalizer removed", changed(testJob(3, 3), lists("a", "b")), []*v1.Pod{testPod("a", done, -1, untracked)}, nil, nil, "1 1 [] [] []"},
		{"listed as failed, says it has succeeded", changed(testJob(3, 3), lists("", "a")),
			[]*v1.Pod{testPod("a", done, -1)}, nil, nil, "0 0 [] [a] [a]"},
		{"deleted", testJob(3, 3), []*v1.Pod{testPod("a", runs, -1, deleting)}, nil, nil, "0 0 [] [a] [a]"},
		{"deleted, its end is waited for", changed(testJob(3, 3), patient), []*v1.Pod{testPod("a", runs, -1, deleting)}, nil, nil, "0 0 [] [] []"},
		{"the Job fails", testJob(3, 3), []*v1.Pod{testPod("a", done, -1), testPod("b", runs, -1)}, failed, nil, "0 0 [a] [b] [a b]"},
		{"the Job succeeds", testJob(3, 3), []*v1.Pod{testPod("a", done, -1), testPod("b", runs, -1)}, success, nil, "0 0 [a] [] [a b]"},
		{"the Job has announced that it succeeds", changed(testJob(3, 3), succeeding),
			[]*v1.Pod{testPod("a", runs, -1, deleting), testPod("b", broken, -1, deleting)}, success, nil, "0 0 [] [b] [a b]"},
		{"the Job is deleted", changed(testJob(3, 3), deletingJob),
			[]*v1.Pod{testPod("a", done, -1), testPod("b", runs, -1)}, nil, nil, "0 0 [a] [] [a b]"},
		{"indexes", testIndexedJob(5, 5),
			[]*v1.Pod{testPod("a", done, 3), testPod("b", done, 3), testPod("c", done, 0), testPod("d", broken, 1)}, nil, nil,
			"2 0 [] [d] [c d a b]"},
		{"invalid indexes", testIndexedJob(5, 5), []*v1.Pod{testPod("a", done, 5), testPod("b", broken, 7), testPod("c", done, -1)}, nil, nil,
			"0 0 [] [] [a b c]"},
		{"held until it is replaced", changed(testIndexedJob(2, 2), perIndex(3)), []*v1.Pod{testPod("a", broken, 0, failedBefore("0"))}, nil, nil,
			"0 0 [] [] []"},
		{"replaced", changed(testIndexedJob(2, 2), perIndex(3)),
			[]*v1.Pod{testPod("a", broken, 0, failedBefore("0"))}, nil, []int{0}, "0 0 [] [a] [a]"},
		{"held is the one with more failures", changed(testIndexedJob(2, 2), perIndex(3)), []*v1.Pod{testPod("a", broken, 0, failedBefore("1")),
			testPod("b", broken, 0, failedBefore("0"))}, nil, nil, "0 0 [] [b] [b]"},
		{"failed for the last time", changed(testIndexedJob(2, 2), perIndex(1)), []*v1.Pod{testPod("a", broken, 0, failedBefore("1"))}, nil, nil,
			"0 0 [] [a] [a]"},
	} {
		busy := map[int]bool{}
		for _, index := range test.busy {
			busy[index] = true
		}
		before := test.job.DeepCopy()
		a := stateOf(test.job, test.pods...).account(test.end, busy)
		released := []string{}
		for _, pod := range a.release {
			released = append(released, pod.Name)
		}
		u := a.status.UncountedTerminatedPods
		if got := fmt.Sprint(a.status.Succeeded, " ", a.status.Failed, " ", u.Succeeded, " ", u.Failed, " ", released); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
		if !slices.Equal(before.Status.Conditions, test.job.Status.Conditions) || before.Status.Succeeded != test.job.Status.Succeeded {
			t.Errorf("%s: the Job was changed", test.name)
		}
	}
}

// A status has at most 500 UIDs, also when the finalizers of those that it has
// cannot be removed.
func TestAStatusIsBounded(t *testing.T) {
	for _, indexed := range []bool{false, true} {
		job := testJob(2000, 2000)
		index := func(int) int { return -1 }
		if indexed {
			job = testIndexedJob(2000, 2000)
			index = func(i int) int { return i }
		}
		var pods []*v1.Pod
		for i := range 1200 {
			phase := v1.PodSucceeded
			if i%3 == 0 {
				phase = v1.PodFailed
			}
			pods = append(pods, testPod(fmt.Sprint(i), phase, index(i)))
		}
		for round := range 2 {
			a := stateOf(job, pods...).account(nil, nil)
			u := a.status.UncountedTerminatedPods
			// What is left of an Indexed Job fits once its indexes are written.
			limited := !indexed || round == 0
			if listed := len(u.Succeeded) + len(u.Failed); listed > burst || a.limited != limited || len(a.release) < burst/2 {
				t.Errorf("indexed: %t, round %d: %d listed, %d released, limited: %t", indexed, round, listed, len(a.release), a.limited)
			}
			job.Status = a.status
		}
	}
}

// A finished pod that has lost its owner and its finalizer may have been
// counted, unless it is older than the Job.
func TestCountedPodsAreNotAdopted(t *testing.T) {
	job := testJob(1, 1)
	job.CreationTimestamp = metav1.NewTime(start)
	older := func(pod *v1.Pod) { pod.CreationTimestamp = metav1.NewTime(start.Add(-1e9)) }
	owned := func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, jobKind)}
	}
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want bool
	}{
		{"finished", testPod("a", v1.PodSucceeded, -1, untracked), true},
		{"older", testPod("a", v1.PodSucceeded, -1, untracked, older), false},
		{"tracked", testPod("a", v1.PodFailed, -1), false},
		{"active", testPod("a", v1.PodRunning, -1, untracked), false},
		{"owned", testPod("a", v1.PodSucceeded, -1, untracked, owned), false},
	} {
		if got := mayBeCounted(job, test.pod); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}
