package job

import (
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Only what nobody waits for is put off.
func TestStatusesThatCanBePutOff(t *testing.T) {
	begun := func(j *batchv1.Job) { j.Status.StartTime = ptr.To(metav1.NewTime(start)) }
	goes := func(j *batchv1.Job) { j.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }
	pods := func(phases ...v1.PodPhase) (pods []*v1.Pod) {
		for i, phase := range phases {
			pods = append(pods, testPod(string(rune('a'+i)), phase, -1))
		}
		return pods
	}
	for _, test := range []struct {
		name    string
		job     *batchv1.Job
		pods    []*v1.Pod
		step    step
		changed string
		limited bool
		want    bool
	}{
		{"counts", changed(testJob(3, 3), begun), pods(v1.PodRunning), step{manages: true}, "", false, true},
		{"a pod to be counted", changed(testJob(3, 3), begun), pods(v1.PodSucceeded), step{manages: true}, "", false, true},
		{"the start", testJob(3, 3), pods(v1.PodRunning), step{manages: true}, "", false, false},
		{"the end", changed(testJob(3, 3), begun), pods(v1.PodSucceeded), step{end: &outcome{}}, "", false, false},
		{"a suspension", changed(testJob(3, 3), begun), nil, step{manages: true}, eventSuspended, false, false},
		{"a refused pod", changed(testJob(3, 3), begun), pods(v1.PodRunning), step{made: managed{err: errors.New("quota")}}, "", false, false},
		{"more to be counted", changed(testJob(3, 3), begun), pods(v1.PodSucceeded), step{manages: true}, "", true, false},
		{"a deletion", changed(testJob(3, 3), begun, goes), pods(v1.PodRunning), step{}, "", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.step.state = stateOf(test.job, test.pods...)
			a := test.step.state.account(test.step.end, nil)
			a.limited = test.limited
			new(jobController).describe(&a.status, &test.step)
			if got := test.step.onItsWay(&a, test.changed); got != test.want {
				t.Errorf("put off: %t", got)
			}
		})
	}
	s := stateOf(changed(testJob(3, 3), begun))
	a := account{status: *s.job.Status.DeepCopy()}
	if (&step{state: s, manages: true}).onItsWay(&a, "") {
		t.Error("a status that says nothing new is put off")
	}
}

// A status is put off until two seconds after the last, whatever the clock does.
func TestStatusesArePaced(t *testing.T) {
	key := work.ObjectName{Namespace: "ns", Name: "job"}
	n := newNotes()
	if pause := n.pause(key, start); pause != 0 {
		t.Errorf("the first status: %s", pause)
	}
	n.wrote(key, start)
	for after, want := range map[time.Duration]time.Duration{
		0: pace, pace / 4: pace - pace/4, pace: 0, time.Hour: 0, -time.Second: pace - time.Second, -time.Hour: 0,
	} {
		if pause := n.pause(key, start.Add(after)); pause != want {
			t.Errorf("after %s: %s", after, pause)
		}
	}
	n.forget(key)
	if pause := n.pause(key, start); pause != 0 {
		t.Errorf("a Job of the same name: %s", pause)
	}
}
