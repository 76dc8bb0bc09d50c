package replicaset

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

var (
	now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	web = cache.NewObjectName("a", "web")
)

func pod(labels map[string]string, ready bool, age time.Duration) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	if ready {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-age))}}
	}
	return p
}

func testEngine(countTerminating bool) *engine[*appsv1.ReplicaSet] {
	return &engine[*appsv1.ReplicaSet]{
		kind:    replicaSets{},
		options: Options{CountTerminating: countTerminating},
		doomed:  podcontrol.NewDoomed(),
	}
}

func TestStatus(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": "front"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Generation: 7},
		Spec: appsv1.ReplicaSetSpec{
			MinReadySeconds: 10,
			Template:        v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
	pods := ownPods{
		active: []*v1.Pod{
			pod(labels, true, 10*time.Second),
			pod(labels, true, 9*time.Second),
			pod(map[string]string{"app": "web", "tier": "front", "more": "x"}, false, 0),
			pod(map[string]string{"app": "web"}, true, time.Hour),
		},
		terminating: []*v1.Pod{pod(labels, false, 0)},
	}
	want := Status{Replicas: 4, FullyLabeled: 3, Ready: 3, Available: 2, Terminating: ptr.To[int32](1), ObservedGeneration: 7}
	if got := testEngine(true).status(rs, Status{}, pods, managed{looked: true}, now); !equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.Terminating = nil
	if got := testEngine(false).status(rs, Status{}, pods, managed{looked: true}, now); !equal(got, want) {
		t.Errorf("without the gate: got %+v, want %+v", got, want)
	}
	e := testEngine(true)
	e.terminatingDropped.Store(true)
	if got := e.status(rs, Status{}, pods, managed{looked: true}, now); !equal(got, want) {
		t.Errorf("with an API server that drops the count: got %+v, want %+v", got, want)
	}
}

func TestFailure(t *testing.T) {
	stored := &Failure{Status: v1.ConditionTrue, Reason: "FailedCreate", Message: "the first", LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
	fresh := &Failure{Status: v1.ConditionTrue, Reason: "FailedDelete", Message: "the last", LastTransitionTime: metav1.NewTime(now)}
	err := managed{looked: true, err: errors.New("the last"), reason: "FailedDelete"}
	for _, test := range []struct {
		name   string
		stored *Failure
		made   managed
		want   *Failure
	}{
		{"none", nil, managed{looked: true}, nil},
		{"first", nil, err, fresh},
		{"further ones leave it as it is", stored, err, stored},
		{"over", stored, managed{looked: true}, nil},
		{"not looked at", stored, managed{}, stored},
		{"nothing and not looked at", nil, managed{}, nil},
	} {
		if got := failure(test.stored, test.made, now); !ptr.Equal(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestUrgent(t *testing.T) {
	status := func(change func(*Status)) Status {
		s := Status{Replicas: 10, FullyLabeled: 10, Ready: 5, Available: 3, Terminating: ptr.To[int32](4), ObservedGeneration: 2}
		change(&s)
		return s
	}
	before := status(func(*Status) {})
	for _, test := range []struct {
		name   string
		change func(*Status)
		want   bool
	}{
		{"more ready", func(s *Status) { s.Ready = 6 }, false},
		{"more available", func(s *Status) { s.Available = 5 }, false},
		{"fewer terminating", func(s *Status) { s.Terminating = ptr.To[int32](1) }, false},
		{"all of these", func(s *Status) { s.Ready, s.Available, s.Terminating = 6, 5, ptr.To[int32](1) }, false},
		{"all ready", func(s *Status) { s.Ready = 10 }, true},
		{"all available", func(s *Status) { s.Ready, s.Available = 10, 10 }, true},
		{"none terminating", func(s *Status) { s.Terminating = ptr.To[int32](0) }, true},
		{"fewer ready", func(s *Status) { s.Ready = 4 }, true},
		{"fewer available", func(s *Status) { s.Ready, s.Available = 6, 2 }, true},
		{"more terminating", func(s *Status) { s.Terminating = ptr.To[int32](5) }, true},
		{"terminating not counted any more", func(s *Status) { s.Terminating = nil }, true},
		{"more replicas", func(s *Status) { s.Replicas = 11 }, true},
		{"fewer replicas", func(s *Status) { s.Replicas = 9 }, true},
		{"labels", func(s *Status) { s.FullyLabeled = 9 }, true},
		{"generation", func(s *Status) { s.ObservedGeneration = 3 }, true},
		{"failure", func(s *Status) { s.Failure = &Failure{Reason: "FailedCreate"} }, true},
	} {
		if got := urgent(before, status(test.change)); got != test.want {
			t.Errorf("%s: urgent %t", test.name, got)
		}
	}
	counting := status(func(s *Status) { s.Terminating = nil })
	if !urgent(counting, before) {
		t.Error("terminating counted for the first time: not urgent")
	}
	if counting.Ready++; urgent(status(func(s *Status) { s.Terminating = nil }), counting) {
		t.Error("more ready without a count of terminating: urgent")
	}
}

func TestDeletionAgeMetric(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m.deletion([]*v1.Pod{pod(nil, false, time.Second), pod(nil, true, 3*time.Minute), pod(nil, true, time.Minute), pod(nil, true, 2*time.Minute)}, 3, now)
	m.deletion([]*v1.Pod{pod(nil, true, time.Minute), pod(nil, true, time.Second-1)}, 1, now) // no ratio to such an age
	m.deletion([]*v1.Pod{pod(nil, false, time.Minute)}, 1, now)
	var metric dto.Metric
	if err := m.deletionAge.Write(&metric); err != nil {
		t.Fatal(err)
	}
	// 3 and 1: the pod that is not ready and the one that stays do not count.
	histogram := metric.GetHistogram()
	if histogram.GetSampleCount() != 2 || math.Abs(histogram.GetSampleSum()-4) > 1e-9 {
		t.Errorf("%d observations with sum %v, want 2 with 4", histogram.GetSampleCount(), histogram.GetSampleSum())
	}
}

// A controller that is made again finds the metrics of its predecessor.
func TestMetricsOutliveRestarts(t *testing.T) {
	registry := prometheus.NewRegistry()
	for range 2 {
		m, err := newMetrics(registry)
		if err != nil {
			t.Fatal(err)
		}
		m.stale(apischema.GroupResource{Group: "apps", Resource: "replicasets"})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "replicaset_controller_stale_sync_skips_total" {
			if got := family.GetMetric()[0].GetCounter().GetValue(); got != 2 {
				t.Errorf("%v skips, want 2", got)
			}
			return
		}
	}
	t.Error("no metric of skips")
}
