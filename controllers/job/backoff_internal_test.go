package job

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// endedAt returns a pod that finished so many seconds after start.
func endedAt(phase v1.PodPhase, seconds int) *v1.Pod {
	return &v1.Pod{
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: phase, ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))}}}}},
	}
}

func TestBackOffCountsFailuresSinceTheLastSuccess(t *testing.T) {
	stored := backOff{failures: 2, last: start.Add(5 * time.Second)}
	for _, test := range []struct {
		name     string
		finished []*v1.Pod
		failures int
		last     int
	}{
		{"nothing new", nil, 2, 5},
		{"failures", []*v1.Pod{endedAt(v1.PodFailed, 9), endedAt(v1.PodFailed, 7)}, 4, 9},
		{"an older failure", []*v1.Pod{endedAt(v1.PodFailed, 3)}, 3, 5},
		{"a success", []*v1.Pod{endedAt(v1.PodSucceeded, 9)}, 0, 0},
		{"failures before and after successes", []*v1.Pod{endedAt(v1.PodFailed, 6), endedAt(v1.PodFailed, 12), endedAt(v1.PodSucceeded, 7),
			endedAt(v1.PodSucceeded, 10), endedAt(v1.PodFailed, 10), endedAt(v1.PodFailed, 11)}, 2, 12},
	} {
		got := stored.after(test.finished)
		if got.failures != test.failures || test.failures > 0 && !got.last.Equal(start.Add(time.Duration(test.last)*time.Second)) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

// Pods whose finalizer could not be removed are found again; they are counted once.
func TestBackOffCountsAPodOnce(t *testing.T) {
	named := func(uid types.UID, pod *v1.Pod) *v1.Pod {
		pod.UID = uid
		return pod
	}
	ignored, success := named("a", endedAt(v1.PodFailed, 1)), named("b", endedAt(v1.PodSucceeded, 2))
	later, last := named("c", endedAt(v1.PodFailed, 3)), named("d", endedAt(v1.PodFailed, 4))
	record := backOff{uid: "job"}.after([]*v1.Pod{ignored})
	if record = record.after([]*v1.Pod{ignored}); record.failures != 1 {
		t.Errorf("a failure found twice: %+v", record)
	}
	record = record.after([]*v1.Pod{ignored, success, later})
	if record = record.after([]*v1.Pod{success, last}); record.failures != 2 || !record.last.Equal(start.Add(4*time.Second)) {
		t.Errorf("a success found twice: %+v", record)
	}
	if record = record.after(nil); record.failures != 2 || len(record.seen) != 0 {
		t.Errorf("in the end: %+v", record)
	}
}

// The clock of a node that is ahead does not prolong the back-off.
func TestBackOffBeginsNowAtTheLatest(t *testing.T) {
	record := backOff{}.after([]*v1.Pod{endedAt(v1.PodFailed, 3600)}).by(start)
	if got := record.wait(start); got != 10*time.Second {
		t.Errorf("%s", got)
	}
	if got := record.by(start.Add(time.Minute)); !got.last.Equal(start) {
		t.Errorf("later: %+v", got)
	}
}

// What no duration can hold is no deadline that has passed.
func TestADeadlineMayBeBeyondAllTimes(t *testing.T) {
	job := testJob(1, 1)
	job.Status.StartTime = ptr.To(metav1.NewTime(start))
	for _, limit := range []int64{1 << 34, math.MaxInt64} {
		job.Spec.ActiveDeadlineSeconds = &limit
		s := newState(job, nil, nil, start.Add(time.Hour))
		if left, limited := s.untilDeadline(); !limited || left < 1<<40 || s.decide() != nil {
			t.Errorf("%d seconds: %s left, %+v", limit, left, s.decide())
		}
	}
}

func TestBackOffDoubles(t *testing.T) {
	want := []time.Duration{0, 10, 20, 40, 80, 160, 320, 600, 600}
	for failures, seconds := range want {
		record := backOff{failures: failures, last: start}
		if got := record.wait(start); got != seconds*time.Second {
			t.Errorf("%d failures: %s", failures, got)
		}
	}
	if got := (backOff{failures: 1 << 30, last: start}).wait(start.Add(time.Minute)); got != 9*time.Minute {
		t.Errorf("very many failures: %s", got)
	}
	pod := endedAt(v1.PodFailed, 0)
	pod.Annotations = map[string]string{batchv1.JobIndexFailureCountAnnotation: "1", batchv1.JobIndexIgnoredFailureCountAnnotation: "1"}
	if got := indexWait(pod, start.Add(15*time.Second)); got != 25*time.Second {
		t.Errorf("an index that has failed three times: %s", got)
	}
	pod.Annotations = map[string]string{batchv1.JobIndexFailureCountAnnotation: "2147483647",
		batchv1.JobIndexIgnoredFailureCountAnnotation: "2147483647"}
	if got := indexWait(pod, start); got != podBackOffMax {
		t.Errorf("an index with full counters: %s", got)
	}
}

func TestFinishTime(t *testing.T) {
	at := func(seconds int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)) }
	always := v1.ContainerRestartPolicyAlways
	terminated := func(name string, seconds int) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at(seconds)}}}
	}
	base := func(changes ...func(*v1.Pod)) *v1.Pod {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1)},
			Spec: v1.PodSpec{
				InitContainers: []v1.Container{{Name: "first"}, {Name: "sidecar", RestartPolicy: &always}},
				Containers:     []v1.Container{{Name: "a"}, {Name: "b"}},
			},
		}
		for _, change := range changes {
			change(pod)
		}
		return pod
	}
	notReady := func(pod *v1.Pod) {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: at(30)}}
	}
	deleted := func(pod *v1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(at(50)), ptr.To[int64](30)
	}
	containers := func(pod *v1.Pod) {
		pod.Status.ContainerStatuses = []v1.ContainerStatus{terminated("b", 12), terminated("a", 11)}
	}
	sidecar := func(pod *v1.Pod) { pod.Status.InitContainerStatuses = []v1.ContainerStatus{terminated("sidecar", 13)} }
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want int
	}{
		{"created", base(), 1},
		{"deleted", base(deleted), 20},
		{"not ready", base(deleted, notReady), 30},
		{"the sidecar has not ended", base(deleted, notReady, containers), 30},
		{"all have ended", base(deleted, notReady, containers, sidecar), 13},
	} {
		if got := finishTime(test.pod); !got.Equal(at(test.want).Time) {
			t.Errorf("%s: %s", test.name, got)
		}
	}
}

// A Job whose pods all fail gets the next one 10, 20, 40, 80 … seconds after
// the last has failed, and none once the limit is reached; the clock is that of
// a bubble.
func TestPodsAreReplacedWhenTheBackOffIsOver(t *testing.T) {
	for _, perIndex := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			job := testJob(1, 1)
			if perIndex {
				job = testIndexedJob(1, 1)
				job.Spec.BackoffLimitPerIndex = ptr.To[int32](100)
			}
			job.Spec.BackoffLimit = ptr.To[int32](4)
			var last *v1.Pod
			var record backOff
			for failures, want := range []time.Duration{0, 10, 20, 40, 80} {
				began := time.Now()
				for {
					var pods []*v1.Pod
					if last != nil {
						pods = append(pods, last)
					}
					s := newState(job, pods, nil, time.Now())
					if end := s.decide(); end != nil {
						t.Fatalf("after %d failures: %s", failures, end.reason)
					}
					p := s.plan(record)
					if len(p.create) == 1 {
						last = nextPod(t, s, p.create[0])
						break
					}
					if p.wait <= 0 {
						t.Fatalf("after %d failures: %+v", failures, p)
					}
					time.Sleep(p.wait)
				}
				if took := time.Since(began); took != want*time.Second {
					t.Errorf("after %d failures: a pod after %s", failures, took)
				}
				time.Sleep(time.Minute)
				last.Status = endedAt(v1.PodFailed, 0).Status
				last.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.Now()
				record = record.after([]*v1.Pod{last})
				if !perIndex {
					job.Status.Failed++ // as the last pod holds no finalizer
				}
			}
			job.Status.Failed = 5
			s := newState(job, nil, nil, time.Now())
			if end := s.decide(); end == nil || end.reason != batchv1.JobReasonBackoffLimitExceeded {
				t.Errorf("in the end: %+v", end)
			}
		})
	}
}

// nextPod makes a pod whose failure is not counted by state, as the test does that.
func nextPod(t *testing.T, s *state, c creation) *v1.Pod {
	t.Helper()
	makePod, err := newPods(s.job, s.indexed, s.perIndex)
	if err != nil {
		t.Fatal(err)
	}
	pod := makePod(c)
	pod.UID = types.UID("pod made at " + time.Now().String())
	if !s.perIndex {
		pod.Finalizers = nil
	}
	return pod
}

// A deadline ends a Job at that very instant, counted from when it last became active.
func TestDeadlineOnAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := testJob(1, 1)
		job.Spec.ActiveDeadlineSeconds = ptr.To[int64](100)
		job.Status.StartTime = ptr.To(metav1.Now())
		state := func() *state { return newState(job, nil, nil, time.Now()) }
		time.Sleep(40 * time.Second)
		job.Spec.Suspend = ptr.To(true)
		if _, limited := state().untilDeadline(); limited {
			t.Error("a suspended Job has a deadline")
		}
		time.Sleep(time.Hour)
		if end := state().decide(); end != nil {
			t.Errorf("a suspended Job ends: %+v", end)
		}
		setSuspended(&job.Status, true, time.Now())
		job.Spec.Suspend = ptr.To(false)
		if left, _ := state().untilDeadline(); left != 100*time.Second {
			t.Errorf("%s are left after a resumption", left)
		}
		job.Status.StartTime = ptr.To(metav1.Now())
		setSuspended(&job.Status, false, time.Now())
		left, _ := state().untilDeadline()
		time.Sleep(left - time.Nanosecond)
		if end := state().decide(); end != nil {
			t.Errorf("an instant before: %+v", end)
		}
		time.Sleep(time.Nanosecond)
		if end := state().decide(); end == nil || end.reason != batchv1.JobReasonDeadlineExceeded {
			t.Errorf("at the deadline: %+v", end)
		}
	})
}

func testJob(completions, parallelism int32) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job"},
		Spec:       batchv1.JobSpec{Completions: ptr.To(completions), Parallelism: ptr.To(parallelism), BackoffLimit: ptr.To[int32](6)},
	}
	job.Spec.Template.Labels = map[string]string{"job": "job"}
	job.Spec.Template.Spec.Containers = []v1.Container{{Name: "c"}}
	return job
}

func testIndexedJob(completions, parallelism int32) *batchv1.Job {
	job := testJob(completions, parallelism)
	job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	return job
}
