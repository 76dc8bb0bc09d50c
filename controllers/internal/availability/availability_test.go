package availability_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func podIn(phase v1.PodPhase, deleting bool) *v1.Pod {
	pod := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
	if deleting {
		pod.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return pod
}

// ready returns a pod whose Ready condition has had status since then.
func ready(status v1.ConditionStatus, since time.Time) *v1.Pod {
	return &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
		{Type: v1.PodReady, Status: status, LastTransitionTime: metav1.Time{Time: since}},
	}}}
}

func TestStates(t *testing.T) {
	for _, test := range []struct {
		phase                         v1.PodPhase
		deleting                      bool
		active, terminal, terminating bool
	}{
		{v1.PodPending, false, true, false, false},
		{v1.PodRunning, false, true, false, false},
		{v1.PodUnknown, false, true, false, false},
		{"", false, true, false, false},
		{v1.PodSucceeded, false, false, true, false},
		{v1.PodFailed, false, false, true, false},
		{v1.PodRunning, true, false, false, true},
		{v1.PodPending, true, false, false, true},
		{v1.PodSucceeded, true, false, true, false},
		{v1.PodFailed, true, false, true, false},
	} {
		pod := podIn(test.phase, test.deleting)
		if got := availability.IsActive(pod); got != test.active {
			t.Errorf("phase %q, deleting %t: active %t", test.phase, test.deleting, got)
		}
		if got := availability.IsTerminal(pod); got != test.terminal {
			t.Errorf("phase %q, deleting %t: terminal %t", test.phase, test.deleting, got)
		}
		if got := availability.IsTerminating(pod); got != test.terminating {
			t.Errorf("phase %q, deleting %t: terminating %t", test.phase, test.deleting, got)
		}
		if got := len(availability.Active([]*v1.Pod{pod})) == 1; got != test.active {
			t.Errorf("phase %q, deleting %t: kept as active %t", test.phase, test.deleting, got)
		}
		if got := len(availability.Terminating([]*v1.Pod{pod})) == 1; got != test.terminating {
			t.Errorf("phase %q, deleting %t: kept as terminating %t", test.phase, test.deleting, got)
		}
	}
}

func TestIsReady(t *testing.T) {
	two := ready(v1.ConditionFalse, now)
	two.Status.Conditions = append(two.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
	failed := ready(v1.ConditionTrue, now)
	failed.Status.Phase = v1.PodFailed
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want bool
	}{
		{"no condition", &v1.Pod{}, false},
		{"true", ready(v1.ConditionTrue, now), true},
		{"false", ready(v1.ConditionFalse, now), false},
		{"unknown", ready(v1.ConditionUnknown, now), false},
		{"the first condition counts", two, false},
		{"phase does not count", failed, true},
	} {
		if got := availability.IsReady(test.pod); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

func TestIsAvailable(t *testing.T) {
	for _, test := range []struct {
		name       string
		pod        *v1.Pod
		minSeconds int32
		want       bool
		until      time.Duration // 0: never by time alone
	}{
		{"not ready", ready(v1.ConditionFalse, now.Add(-time.Hour)), 0, false, 0},
		{"not ready, with a minimum", ready(v1.ConditionFalse, now.Add(-time.Hour)), 5, false, 0},
		{"no minimum", ready(v1.ConditionTrue, now), 0, true, 0},
		{"no minimum, time unknown", ready(v1.ConditionTrue, time.Time{}), 0, true, 0},
		{"time unknown", ready(v1.ConditionTrue, time.Time{}), 5, false, 0},
		{"too short", ready(v1.ConditionTrue, now.Add(-4*time.Second)), 5, false, time.Second},
		{"at the border", ready(v1.ConditionTrue, now.Add(-5*time.Second)), 5, true, 0},
		{"long since", ready(v1.ConditionTrue, now.Add(-time.Hour)), 5, true, 0},
		{"in the future", ready(v1.ConditionTrue, now.Add(time.Second)), 5, false, 6 * time.Second},
		{"longest minimum", ready(v1.ConditionTrue, now), 1<<31 - 1, false, (1<<31 - 1) * time.Second},
	} {
		if got := availability.IsAvailable(test.pod, test.minSeconds, now); got != test.want {
			t.Errorf("%s: available %t", test.name, got)
		}
		until, ok := availability.Until(test.pod, test.minSeconds, now)
		if ok != (test.until > 0) || ok && until != test.until {
			t.Errorf("%s: until %s %t, want %s", test.name, until, ok, test.until)
		}
		if ok && !availability.IsAvailable(test.pod, test.minSeconds, now.Add(until)) {
			t.Errorf("%s: not available after the time that was to be waited", test.name)
		}
	}
}

func TestNextCheck(t *testing.T) {
	since := func(ago time.Duration) *v1.Pod { return ready(v1.ConditionTrue, now.Add(-ago)) }
	for _, test := range []struct {
		name    string
		pods    []*v1.Pod
		elapsed time.Duration
		want    time.Duration
		found   bool
	}{
		{"no pod", nil, 0, 0, false},
		{"the earliest", []*v1.Pod{since(2 * time.Second), since(4300 * time.Millisecond), since(0)}, 0, 700 * time.Millisecond, true},
		{"all available or not ready", []*v1.Pod{since(time.Minute), ready(v1.ConditionFalse, now)}, 0, 0, false},
		{"time passes while judging", []*v1.Pod{since(2 * time.Second), since(4 * time.Second)}, 200 * time.Millisecond, 800 * time.Millisecond, true},
		{"its time has come meanwhile", []*v1.Pod{since(2 * time.Second), since(4 * time.Second)}, 2 * time.Second, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			present := clocktesting.NewFakePassiveClock(now.Add(test.elapsed))
			got, found := availability.NextCheck(test.pods, 5, now, present)
			if got != test.want || found != test.found {
				t.Errorf("got %s %t, want %s %t", got, found, test.want, test.found)
			}
		})
	}
}
