package podgc

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func pod(name string, change func(*v1.Pod)) *v1.Pod {
	made := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, CreationTimestamp: metav1.NewTime(noon)},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
	change(made)
	return made
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	terminating := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }
	for _, test := range []struct {
		name   string
		change func(*v1.Pod)
		want   []string
	}{
		{"running", func(*v1.Pod) {}, nil},
		{"pending", func(p *v1.Pod) { p.Status.Phase = v1.PodPending }, nil},
		{"unknown", func(p *v1.Pod) { p.Status.Phase = v1.PodUnknown }, nil},
		{"succeeded", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, []string{finishedPods}},
		{"failed", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, []string{finishedPods}},
		{"no phase", func(p *v1.Pod) { p.Status.Phase = "" }, []string{finishedPods}},
		{"terminating", terminating, []string{unscheduledPods}},
		{"terminating on a node", func(p *v1.Pod) { terminating(p); p.Spec.NodeName = "a" }, []string{boundPods}},
		{"finished and terminating", func(p *v1.Pod) { terminating(p); p.Status.Phase = v1.PodFailed }, []string{finishedPods, unscheduledPods}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, candidates())
			if err := store.Add(pod("p", test.change)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, value := range []string{finishedPods, unscheduledPods, boundPods} {
				pods, err := candidatesOf(store, value)
				if err != nil {
					t.Fatal(err)
				}
				if len(pods) > 0 {
					got = append(got, value)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("candidate for (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettledPodsNeedNoDeletion(t *testing.T) {
	t.Parallel()
	atOnce := func(p *v1.Pod) {
		p.Status.Phase, p.Finalizers = v1.PodFailed, []string{"x/y"}
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, ptr.To[int64](0)
	}
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want bool
	}{
		{"held by a finalizer", pod("p", atOnce), true},
		{"no finalizer: its deletion was cut off", pod("p", func(p *v1.Pod) { atOnce(p); p.Finalizers = nil }), false},
		{"no outcome yet", pod("p", func(p *v1.Pod) { atOnce(p); p.Status.Phase = v1.PodRunning }), false},
		{"has a grace period", pod("p", func(p *v1.Pod) { atOnce(p); *p.DeletionGracePeriodSeconds = 30 }), false},
		{"not deleted", pod("p", func(p *v1.Pod) { atOnce(p); p.DeletionTimestamp, p.DeletionGracePeriodSeconds = nil, nil }), false},
	} {
		if got := settled(test.pod); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}

func TestFirstToGo(t *testing.T) {
	t.Parallel()
	with := func(name, namespace string, age time.Duration, phase v1.PodPhase, reason string) *v1.Pod {
		return pod(name, func(p *v1.Pod) {
			p.Namespace, p.CreationTimestamp = namespace, metav1.NewTime(noon.Add(-age))
			p.Status.Phase, p.Status.Reason = phase, reason
		})
	}
	want := []*v1.Pod{
		with("evicted-old", "n", time.Minute, v1.PodFailed, "Evicted"),
		with("evicted", "n", 0, v1.PodFailed, "Evicted"),
		with("z", "n", time.Hour, v1.PodSucceeded, ""),
		with("y", "n", time.Minute, v1.PodSucceeded, "Evicted"), // only a failed pod was evicted
		with("a", "m", 0, v1.PodFailed, ""),
		with("a", "n", 0, v1.PodFailed, ""),
		with("b", "a", 0, v1.PodFailed, ""),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, firstToGo)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestOutOfService(t *testing.T) {
	t.Parallel()
	taints := []v1.Taint{{Key: "a"}, {Key: v1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: v1.TaintEffectNoSchedule}}
	ready := func(status v1.ConditionStatus) []v1.NodeCondition {
		return []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
	}
	for _, test := range []struct {
		name       string
		conditions []v1.NodeCondition
		taints     []v1.Taint
		want       bool
	}{
		{"not ready", ready(v1.ConditionFalse), taints, true},
		{"unknown", ready(v1.ConditionUnknown), taints, true},
		{"no condition", nil, taints, true},
		{"ready", ready(v1.ConditionTrue), taints, false},
		{"no taint", ready(v1.ConditionFalse), taints[:1], false},
	} {
		node := &v1.Node{Spec: v1.NodeSpec{Taints: test.taints}, Status: v1.NodeStatus{Conditions: test.conditions}}
		if got := outOfService(node); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	var q quarantine
	at := func(seconds int, nodes []string, present ...string) []string {
		return q.check(nodes, func(node string) bool { return !slices.Contains(present, node) }, noon.Add(time.Duration(seconds)*time.Second))
	}
	both := []string{"a", "b"}
	for _, step := range []struct {
		what      string
		over      []string
		wantsOver []string
	}{
		{"missing at 0", at(0, both), nil},
		{"missing at 39", at(39, both), nil},
		{"missing at 40, one back", at(40, both, "b"), []string{"a"}},
		{"missing again at 60", at(60, both), both[:1]},
		{"still at 99", at(99, both), both[:1]},
		{"for 40 s again at 100", at(100, both), both},
		{"without pods", at(101, both[:1]), both[:1]},
		{"with pods again", at(102, both), both[:1]},
	} {
		if diff := cmp.Diff(step.wantsOver, step.over); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	q.end("a")
	if over := at(103, both); len(over) > 0 {
		t.Errorf("%s is over right after its quarantine ended", over)
	}
	if since := q.nodes()["a"]; !since.Equal(noon.Add(103 * time.Second)) {
		t.Errorf("a is missing since %s", since)
	}
}
