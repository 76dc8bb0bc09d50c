package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// testPod holds the finalizer. With an index, it is one of an Indexed Job.
func testPod(uid string, phase v1.PodPhase, index int, changes ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "ns", UID: types.UID(uid), CreationTimestamp: metav1.NewTime(start),
			Finalizers: []string{batchv1.JobTrackingFinalizer}},
		Status: v1.PodStatus{Phase: phase},
	}
	if index >= 0 {
		pod.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index)}
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func deleting(pod *v1.Pod)  { pod.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }
func untracked(pod *v1.Pod) { pod.Finalizers = nil }
func failedBefore(times string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = times }
}

// stateOf a Job an hour after start.
func stateOf(job *batchv1.Job, pods ...*v1.Pod) *state {
	tracked := map[types.UID]bool{}
	for _, pod := range pods {
		tracked[pod.UID] = hasFinalizer(pod)
	}
	return newState(job, pods, tracked, start.Add(time.Hour))
}

func changed(job *batchv1.Job, changes ...func(*batchv1.Job)) *batchv1.Job {
	for _, change := range changes {
		change(job)
	}
	return job
}

func TestTheEndIsDecided(t *testing.T) {
	limit := func(limit int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To(limit) }
	}
	perIndex := func(limit int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To(limit) }
	}
	policy := func(action batchv1.PodFailurePolicyAction) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: action,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "X", Status: v1.ConditionTrue}}}}}
		}
	}
	has := func(of batchv1.JobConditionType, is v1.ConditionStatus) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Status.Conditions = append(j.Status.Conditions, newCondition(of, is, "Recorded", "", start))
		}
	}
	x := func(pod *v1.Pod) { pod.Status.Conditions = []v1.PodCondition{{Type: "X", Status: v1.ConditionTrue}} }
	restarts := func(count int32) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Status.InitContainerStatuses = []v1.ContainerStatus{{RestartCount: count - 1}}
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: 1}}
		}
	}
	onFailure := func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyOnFailure }
	success := func(j *batchv1.Job) {
		j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: ptr.To[int32](1)}}}
	}
	suspend := func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }
	deadline := func(j *batchv1.Job) {
		j.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
		j.Status.StartTime = ptr.To(metav1.NewTime(start))
	}
	failed, done, runs := v1.PodFailed, v1.PodSucceeded, v1.PodRunning
	for _, test := range []struct {
		name string
		job  *batchv1.Job
		pods []*v1.Pod
		want string
	}{
		{"running", testJob(1, 1), []*v1.Pod{testPod("a", runs, -1)}, ""},
		{"failures up to the limit", changed(testJob(1, 1), limit(1)), []*v1.Pod{testPod("a", failed, -1)}, ""},
		{"one more", changed(testJob(1, 1), limit(1)), []*v1.Pod{testPod("a", failed, -1), testPod("b", failed, -1)}, "failed BackoffLimitExceeded"},
		{"a deleted pod has failed", changed(testJob(1, 1), limit(0)), []*v1.Pod{testPod("a", runs, -1, deleting)}, "failed BackoffLimitExceeded"},
		{"unless its end is waited for", changed(testJob(1, 1), limit(0), policy("Count")), []*v1.Pod{testPod("a", runs, -1, deleting)}, ""},
		{"a pod that was given up has not", changed(testJob(1, 1), limit(0)), []*v1.Pod{testPod("a", failed, -1, untracked)}, ""},
		{"ignored", changed(testJob(1, 1), limit(0), policy("Ignore")), []*v1.Pod{testPod("a", failed, -1, x)}, ""},
		{"failure policy", changed(testJob(1, 1), policy("FailJob")), []*v1.Pod{testPod("a", failed, -1, x)}, "failed PodFailurePolicy"},
		{"failure policy and a pod that was given up", changed(testJob(1, 1), policy("FailJob")),
			[]*v1.Pod{testPod("a", failed, -1, x, untracked)}, ""},
		{"restarts below the limit", changed(testJob(1, 1), limit(3), onFailure), []*v1.Pod{testPod("a", runs, -1, restarts(2))}, ""},
		{"restarts of several pods", changed(testJob(2, 2), limit(4), onFailure),
			[]*v1.Pod{testPod("a", runs, -1, restarts(2)), testPod("b", v1.PodPending, -1, restarts(2))}, "failed BackoffLimitExceeded"},
		{"restarts when pods are not restarted", changed(testJob(1, 1), limit(3)), []*v1.Pod{testPod("a", runs, -1, restarts(5))}, ""},
		{"deadline", changed(testJob(1, 1), deadline), nil, "failed DeadlineExceeded"},
		{"deadline while suspended", changed(testJob(1, 1), deadline, suspend), nil, ""},
		{"deadline counts from the resumption", changed(testJob(1, 1), deadline, has(batchv1.JobSuspended, v1.ConditionTrue)), nil, ""},
		{"index fails for the last time", changed(testIndexedJob(2, 2), perIndex(1)),
			[]*v1.Pod{testPod("a", failed, 0, failedBefore("1")), testPod("b", runs, 1)}, ""},
		{"all indexes have ended", changed(testIndexedJob(2, 2), perIndex(1)),
			[]*v1.Pod{testPod("a", failed, 0, failedBefore("1")), testPod("b", done, 1)}, "failed FailedIndexes"},
		{"an index that may fail again", changed(testIndexedJob(2, 2), perIndex(1)),
			[]*v1.Pod{testPod("a", failed, 0, failedBefore("0")), testPod("b", done, 1)}, ""},
		{"too many failed indexes", changed(testIndexedJob(3, 3), perIndex(0), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = ptr.To[int32](1) }),
			[]*v1.Pod{testPod("a", failed, 0), testPod("b", failed, 1)}, "failed MaxFailedIndexesExceeded"},
		{"an index fails by policy", changed(testIndexedJob(1, 1), perIndex(9), policy("FailIndex")), []*v1.Pod{testPod("a", failed, 0, x)},
			"failed FailedIndexes"},
		{"success policy", changed(testIndexedJob(2, 2), success), []*v1.Pod{testPod("a", done, 1)}, "succeeded SuccessPolicy"},
		{"a failure goes before it", changed(testIndexedJob(2, 2), success, limit(0)), []*v1.Pod{testPod("a", done, 1), testPod("b", failed, 0)},
			"failed BackoffLimitExceeded"},
		{"but not once it was announced", changed(testIndexedJob(2, 2), success, limit(0), has(batchv1.JobSuccessCriteriaMet, v1.ConditionTrue)),
			[]*v1.Pod{testPod("b", failed, 0)}, "succeeded Recorded"},
		{"an announced failure stays", changed(testJob(1, 1), has(batchv1.JobFailureTarget, v1.ConditionTrue)), nil, "failed Recorded"},
		{"conditions that are false say nothing", changed(testJob(1, 1), has(batchv1.JobFailureTarget, v1.ConditionFalse),
			has(batchv1.JobSuccessCriteriaMet, v1.ConditionFalse)), nil, ""},
	} {
		got := ""
		if end := stateOf(test.job, test.pods...).decide(); end != nil {
			got = "succeeded " + end.reason
			if end.failed {
				got = "failed " + end.reason
			}
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestPodsArePlanned(t *testing.T) {
	completions := func(n int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.Completions = &n }
	}
	anyNumber := func(j *batchv1.Job) { j.Spec.Completions = nil }
	patient := func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }
	perIndex := func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](5) }
	suspend := func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }
	completed := func(text string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Status.CompletedIndexes = text }
	}
	succeeded := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Status.Succeeded = n } }
	onNode := func(pod *v1.Pod) { pod.Spec.NodeName = "n" }
	justFailed := func(pod *v1.Pod) { pod.CreationTimestamp = metav1.NewTime(start.Add(time.Hour - 4*time.Second)) }
	runs, done, failed := v1.PodRunning, v1.PodSucceeded, v1.PodFailed
	recent := backOff{failures: 1, last: start.Add(time.Hour - 3*time.Second)}
	for _, test := range []struct {
		name   string
		job    *batchv1.Job
		pods   []*v1.Pod
		record backOff
		// want is "remove a b", "create 2", "create indexes 0 3", with "wait 7s" after it.
		want string
	}{
		{"all are missing", testJob(5, 3), nil, backOff{}, "create 3"},
		{"one is missing", testJob(5, 3), []*v1.Pod{testPod("a", runs, -1), testPod("b", runs, -1)}, backOff{}, "create 1"},
		{"in back-off", testJob(5, 3), nil, recent, "wait 7s"},
		{"no more than completions", changed(testJob(5, 3), succeeded(4)), nil, backOff{}, "create 1"},
		{"all completions are there", changed(testJob(5, 3), succeeded(5)), []*v1.Pod{testPod("a", runs, -1)}, backOff{}, "remove a"},
		{"any number, none succeeded", changed(testJob(1, 3), anyNumber), nil, backOff{}, "create 3"},
		{"any number, one succeeded", changed(testJob(1, 3), anyNumber), []*v1.Pod{testPod("a", done, -1), testPod("b", runs, -1)}, backOff{}, ""},
		{"too many", testJob(5, 1), []*v1.Pod{testPod("a", runs, -1, onNode), testPod("b", v1.PodPending, -1), testPod("c", v1.PodPending, -1, onNode)},
			backOff{}, "remove b c"},
		{"too many, one was given up already", testJob(5, 1), []*v1.Pod{testPod("a", runs, -1, onNode, untracked), testPod("b", v1.PodPending, -1)},
			backOff{}, "remove a"},
		{"suspended", changed(testJob(5, 3), suspend),
			[]*v1.Pod{testPod("a", runs, -1), testPod("b", done, -1), testPod("c", runs, -1)}, recent, "remove a c"},
		{"terminating pods are replaced", testJob(5, 2), []*v1.Pod{testPod("a", runs, -1, deleting)}, backOff{}, "create 2"},
		{"or waited for", changed(testJob(5, 2), patient), []*v1.Pod{testPod("a", runs, -1, deleting)}, backOff{}, "create 1"},
		{"lowest indexes", changed(testIndexedJob(9, 4), completed("0,2-4")), []*v1.Pod{testPod("a", runs, 5)}, backOff{}, "create indexes 1 6 7"},
		{"indexes that terminate", changed(testIndexedJob(3, 2), patient), []*v1.Pod{testPod("a", runs, 0, deleting)}, backOff{}, "create indexes 1"},
		{"duplicates, invalid and missing indexes", testIndexedJob(3, 3), []*v1.Pod{testPod("a", runs, 0, onNode), testPod("b", v1.PodPending, 0),
			testPod("c", runs, 3), testPod("d", runs, -1), testPod("e", runs, 1)}, backOff{}, "remove b c d"},
		{"index in back-off blocks higher ones", changed(testIndexedJob(3, 1), perIndex),
			[]*v1.Pod{testPod("a", failed, 0, justFailed)}, backOff{}, "wait 6s"},
		{"but only as many as run at once", changed(testIndexedJob(3, 2), perIndex), []*v1.Pod{testPod("a", failed, 0, justFailed)}, backOff{},
			"create indexes 1 wait 6s"},
		{"index after its back-off", changed(testIndexedJob(2, 2), perIndex), []*v1.Pod{testPod("a", failed, 0), testPod("b", done, 1)}, backOff{},
			"create indexes 0"},
		{"very many completions", changed(testIndexedJob(1<<31-1, 2), completed("0-2147483640")), nil, backOff{},
			"create indexes 2147483641 2147483642"},
		{"at most so many at once", changed(testJob(9999, 9999), completions(9999)), nil, backOff{}, "create 500"},
	} {
		s := stateOf(test.job, test.pods...)
		p := s.plan(test.record)
		var got []string
		if len(p.remove) > 0 {
			var names []string
			for _, pod := range p.remove {
				names = append(names, pod.Name)
			}
			slices.Sort(names)
			got = append(got, "remove "+strings.Join(names, " "))
		}
		switch {
		case len(p.create) > 0 && s.indexed:
			got = append(got, "create indexes")
			for _, c := range p.create {
				got = append(got, fmt.Sprint(c.index))
			}
		case len(p.create) > 0:
			got = append(got, fmt.Sprint("create ", len(p.create)))
		}
		if p.wait > 0 {
			got = append(got, fmt.Sprint("wait ", p.wait))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: got %q, want %q", test.name, text, test.want)
		}
	}
}

func TestPodsOfIndexes(t *testing.T) {
	job := testIndexedJob(3, 3)
	job.Name = strings.Repeat("n", 60)
	job.Spec.BackoffLimitPerIndex = ptr.To[int32](5)
	job.Spec.Template.Finalizers = []string{"example.com/own", batchv1.JobTrackingFinalizer}
	job.Spec.Template.Spec.InitContainers = []v1.Container{{Name: "i", Env: []v1.EnvVar{{Name: completionIndexEnv, Value: "mine"}}}}
	makePod, err := newPods(job, true, true)
	if err != nil {
		t.Fatal(err)
	}
	ignored := testPod("a", v1.PodFailed, 0, failedBefore("2"))
	first, again := makePod(creation{index: 0}), makePod(creation{index: 12, replaces: ignored})
	if first.Annotations[batchv1.JobIndexFailureCountAnnotation] != "0" || again.Annotations[batchv1.JobIndexFailureCountAnnotation] != "3" ||
		indexOfPod(first) != "0" || indexOfPod(again) != "12" {
		t.Errorf("annotations %v and %v", first.Annotations, again.Annotations)
	}
	if again.GenerateName != strings.Repeat("n", 54)+"-12-" || len(again.GenerateName) != maxGeneratedName {
		t.Errorf("name %s", again.GenerateName)
	}
	if len(first.Finalizers) != 2 || len(first.Spec.InitContainers[0].Env) != 1 || len(first.Spec.Containers[0].Env) != 1 {
		t.Errorf("finalizers %v, containers %+v", first.Finalizers, first.Spec)
	}
	if len(job.Spec.Template.Spec.Containers[0].Env) > 0 || len(job.Spec.Template.Annotations) > 0 {
		t.Error("the Job was changed")
	}
	job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "X", Status: v1.ConditionTrue}}}}}
	ignored.Status.Conditions = []v1.PodCondition{{Type: "X", Status: v1.ConditionTrue}}
	if counted, skipped := failuresOf(job.Spec.PodFailurePolicy, ignored); counted != 2 || skipped != 1 {
		t.Errorf("after an ignored failure: %d and %d", counted, skipped)
	}
}

func indexOfPod(pod *v1.Pod) string { return pod.Labels[batchv1.JobCompletionIndexAnnotation] }

// A deletion that was cut off between its two steps is requested again.
func TestDeletionsAreFinished(t *testing.T) {
	bound := func(pod *v1.Pod) { pod.Spec.NodeName = "node" }
	pods := []*v1.Pod{
		testPod("stuck", v1.PodPending, -1, deleting, untracked),
		testPod("held by the finalizer", v1.PodPending, -1, deleting),
		testPod("ended by the node", v1.PodRunning, -1, deleting, untracked, bound),
		testPod("active", v1.PodPending, -1, untracked),
	}
	s := newState(testJob(3, 3), pods, nil, start.Add(time.Second))
	if stuck, checkIn := s.stuck(); len(stuck) != 0 || checkIn != 4*time.Second {
		t.Errorf("soon: %d pods, again in %s", len(stuck), checkIn)
	}
	s = newState(testJob(3, 3), pods, nil, start.Add(time.Minute))
	if stuck, checkIn := s.stuck(); len(stuck) != 1 || stuck[0] != pods[0] || checkIn != 0 {
		t.Errorf("late: %d pods, again in %s", len(stuck), checkIn)
	}
}

func TestSuspendedCondition(t *testing.T) {
	var status batchv1.JobStatus
	for i, test := range []struct {
		suspended bool
		changed   string
		want      v1.ConditionStatus
	}{
		{false, "", ""},
		{true, eventSuspended, v1.ConditionTrue},
		{true, "", v1.ConditionTrue},
		{false, eventResumed, v1.ConditionFalse},
		{false, "", v1.ConditionFalse},
		{true, eventSuspended, v1.ConditionTrue},
	} {
		changed := setSuspended(&status, test.suspended, start)
		var got v1.ConditionStatus
		if len(status.Conditions) > 0 {
			got = status.Conditions[0].Status
		}
		if changed != test.changed || got != test.want || len(status.Conditions) > 1 {
			t.Errorf("step %d: %q, %+v", i, changed, status.Conditions)
		}
	}
}

// The pods that an announced end kills say nothing about their indexes.
func TestAnAnnouncedEndFailsNoIndex(t *testing.T) {
	for name, test := range map[string]struct {
		announced bool
		change    func(*v1.Pod)
		want      string
	}{
		"killed by the end":         {true, deleting, "1"},
		"failed by itself":          {true, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, "1,2"},
		"deleted before the end":    {false, deleting, "1,2"},
		"still running at the end":  {true, func(*v1.Pod) {}, "1"},
		"still running, and no end": {false, func(*v1.Pod) {}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			job := testJob(3, 3)
			job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			job.Spec.BackoffLimitPerIndex = ptr.To[int32](0)
			job.Status.FailedIndexes = ptr.To("1")
			if test.announced {
				job.Status.Conditions = []batchv1.JobCondition{
					newCondition(batchv1.JobFailureTarget, v1.ConditionTrue, batchv1.JobReasonMaxFailedIndexesExceeded, "", start),
				}
			}
			if got := stateOf(job, testPod("c", v1.PodRunning, 2, test.change)).failedIndexes.String(); got != test.want {
				t.Errorf("failed indexes %q, want %q", got, test.want)
			}
		})
	}
}
