package statefulset

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func testSet(replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set", Generation: 3},
		Spec: appsv1.StatefulSetSpec{
			Replicas:       ptr.To(replicas),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
		},
	}
}

// testPass is a pass over a set whose current revision is "old" and whose
// update revision is "new". Pods are "ORDINAL: WORDS"; without words they are
// old and not ready.
func testPass(set *appsv1.StatefulSet, pods ...string) *pass {
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	p := &pass{
		statefulSetController: &statefulSetController{metrics: metrics, maxUnavailable: true, clock: clocktesting.NewFakePassiveClock(now)},
		set:                   set,
		ordinals:              ordinalsOf(set),
		now:                   now,
		current:               &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "old"}},
		update:                &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	}
	for _, text := range pods {
		ordinal, words, _ := strings.Cut(text, ":")
		number, err := strconv.Atoi(ordinal)
		if err != nil {
			panic(err)
		}
		p.members = append(p.members, member{ordinal: number, Pod: testPod(number, words)})
	}
	return p
}

func testPod(ordinal int, words string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: nameOf("web", ordinal), UID: types.UID(words),
			Labels: map[string]string{appsv1.StatefulSetRevisionLabel: "old"},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	for _, word := range strings.Fields(words) {
		switch word {
		case "ready":
			pod.Status.Conditions = []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Second))},
			}
		case "new":
			pod.Labels[appsv1.StatefulSetRevisionLabel] = "new"
		case "terminating":
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		case "pending":
			pod.Status.Phase = v1.PodPending
		case "failed":
			pod.Status.Phase = v1.PodFailed
		default:
			panic("unknown word " + word)
		}
	}
	return pod
}

func rolling(maxUnavailable intstr.IntOrString, partition int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{
			MaxUnavailable: &maxUnavailable, Partition: ptr.To(partition),
		}
	}
}

func inParallel(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func TestNextToReplace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		changes []func(*appsv1.StatefulSet)
		gateOff bool
		size    int32
		pods    []string
		want    string
	}{
		{name: "one from the top", size: 3, pods: []string{"0: ready", "1: ready", "2: ready"}, want: "web-2"},
		{name: "the next one", size: 3, pods: []string{"0: ready", "1: ready", "2: ready new"}, want: "web-1"},
		{name: "none while one is not ready", size: 3, pods: []string{"0: ready", "1: ready", "2: new"}},
		{name: "none while one is missing", size: 3, pods: []string{"0: ready", "1: ready"}},
		{name: "done", size: 2, pods: []string{"0: ready new", "1: ready new"}},
		{name: "empty", size: 0},
		{name: "two at once", size: 4, changes: []func(*appsv1.StatefulSet){rolling(intstr.FromInt32(2), 0)},
			pods: []string{"0: ready", "1: ready", "2: ready", "3: ready"}, want: "web-3 web-2"},
		{name: "partition", size: 4, changes: []func(*appsv1.StatefulSet){rolling(intstr.FromInt32(9), 2)},
			pods: []string{"0: ready", "1: ready", "2: ready", "3: ready"}, want: "web-3 web-2"},
		{name: "partition beyond the end", size: 2, changes: []func(*appsv1.StatefulSet){rolling(intstr.FromInt32(9), 7)},
			pods: []string{"0: ready", "1: ready"}},
		{name: "partition from a later start", size: 3, changes: []func(*appsv1.StatefulSet){
			rolling(intstr.FromInt32(9), 1),
			func(set *appsv1.StatefulSet) { set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5} },
		}, pods: []string{"5: ready", "6: ready", "7: ready"}, want: "web-7 web-6"},
		{name: "below the partition uses the budget", size: 3, changes: []func(*appsv1.StatefulSet){inParallel, rolling(intstr.FromInt32(1), 1)},
			pods: []string{"0:", "1: ready", "2: ready"}},
		{name: "parallel, one terminating and one not ready", size: 5,
			changes: []func(*appsv1.StatefulSet){inParallel, rolling(intstr.FromInt32(3), 0)},
			pods:    []string{"0: ready", "1: ready", "2: ready", "3:", "4: terminating"}, want: "web-3 web-2"},
		{name: "parallel, unavailable ones beyond the budget", size: 4,
			changes: []func(*appsv1.StatefulSet){inParallel, rolling(intstr.FromInt32(2), 0)},
			pods:    []string{"0:", "1:", "2: ready", "3: ready"}, want: "web-1 web-0"},
		{name: "parallel, more unavailable than may be", size: 4,
			changes: []func(*appsv1.StatefulSet){inParallel, rolling(intstr.FromInt32(1), 0)},
			pods:    []string{"0: new", "1: new", "2:", "3: ready"}, want: "web-2"},
		{name: "parallel, a missing one uses the budget", size: 3, changes: []func(*appsv1.StatefulSet){inParallel},
			pods: []string{"0: ready", "2: ready"}},
		{name: "parallel, finished ones are deleted already", size: 4,
			changes: []func(*appsv1.StatefulSet){inParallel, rolling(intstr.FromInt32(3), 0)},
			pods:    []string{"0: ready", "1: ready", "2: failed", "3: failed ready"}, want: "web-1 web-0"},
		{name: "ordered, terminating ones are not deleted again", size: 3, changes: []func(*appsv1.StatefulSet){rolling(intstr.FromInt32(2), 0)},
			pods: []string{"0: ready", "1: ready", "2: ready terminating"}, want: "web-1"},
		{name: "not long enough ready", size: 2, changes: []func(*appsv1.StatefulSet){
			func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 11 },
		}, pods: []string{"0: ready", "1: ready new"}},
		{name: "just long enough ready", size: 2, changes: []func(*appsv1.StatefulSet){
			func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 10 },
		}, pods: []string{"0: ready", "1: ready new"}, want: "web-0"},
		{name: "gate off: one at a time", gateOff: true, size: 4, changes: []func(*appsv1.StatefulSet){rolling(intstr.FromInt32(3), 0)},
			pods: []string{"0: ready", "1: ready", "2: ready", "3: ready"}, want: "web-3"},
		{name: "gate off: waits for the younger ones", gateOff: true, size: 3,
			pods: []string{"0: ready", "1: ready", "2: new"}},
		{name: "gate off: waits for a missing one at the top", gateOff: true, size: 3, pods: []string{"0: ready", "1: ready"}},
		{name: "gate off: waits for a missing one between", gateOff: true, size: 3, pods: []string{"0: ready", "2: ready new"}},
		{name: "gate off: an old pod goes, ready or not", gateOff: true, size: 2, pods: []string{"0: ready", "1:"}, want: "web-1"},
		{name: "gate off: does not look below the partition", gateOff: true, size: 3,
			changes: []func(*appsv1.StatefulSet){rolling(intstr.FromInt32(1), 1)},
			pods:    []string{"0:", "1: ready", "2: ready new"}, want: "web-1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			set := testSet(test.size)
			for _, change := range test.changes {
				change(set)
			}
			p := testPass(set, test.pods...)
			p.maxUnavailable = !test.gateOff
			var got []string
			for _, pod := range p.nextToReplace() {
				got = append(got, pod.Name)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}

func TestMaxUnavailableOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		max      *intstr.IntOrString
		replicas int32
		want     int
	}{
		{nil, 10, 1},
		{ptr.To(intstr.FromInt32(3)), 2, 3},
		{ptr.To(intstr.FromInt32(0)), 2, 1},
		{ptr.To(intstr.FromString("30%")), 5, 1},
		{ptr.To(intstr.FromString("50%")), 5, 2},
		{ptr.To(intstr.FromString("100%")), 5, 5},
		{ptr.To(intstr.FromString("1%")), 0, 1},
		{ptr.To(intstr.FromString("many")), 5, 1},
	}
	for _, test := range tests {
		set := testSet(test.replicas)
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: test.max}
		if got := maxUnavailableOf(set); got != test.want {
			t.Errorf("%v of %d: %d, want %d", test.max, test.replicas, got, test.want)
		}
	}
	if got := maxUnavailableOf(testSet(5)); got != 1 {
		t.Errorf("without rollingUpdate: %d", got)
	}
}

func TestUnavailableBelow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		pods []string
		want bool
	}{
		{"all available", []string{"0: ready", "1: ready", "2:"}, false},
		{"one that stays is missing", []string{"0: ready", "2:"}, true},
		{"one that stays is not ready", []string{"0:", "1: ready", "2:"}, true},
		{"one that stays terminates", []string{"0: ready terminating", "1: ready", "2:"}, true},
		{"a lower condemned one", []string{"0: ready", "1: ready", "2:", "3:"}, true},
		{"a higher condemned one", []string{"0: ready", "1: ready", "3:", "4:"}, false},
	}
	for _, test := range tests {
		p := testPass(testSet(2), test.pods...)
		ordinal := 2
		if len(test.pods) == 4 {
			ordinal = 3
		}
		if got := p.unavailableBelow(ordinal); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	set := testSet(4)
	set.Spec.MinReadySeconds = 10
	set.Status.Conditions = []appsv1.StatefulSetCondition{{Type: "Other"}}
	p := testPass(set, "0: ready", "1: ready new", "2: terminating", "3: ready new terminating", "4: pending ready", "7: new")
	p.collisions = 2
	p.count()
	want := appsv1.StatefulSetStatus{
		ObservedGeneration: 3, Replicas: 6, ReadyReplicas: 3, AvailableReplicas: 3, CurrentReplicas: 2, UpdatedReplicas: 2,
		CurrentRevision: "old", UpdateRevision: "new", CollisionCount: ptr.To[int32](2), Conditions: set.Status.Conditions,
	}
	if !sameStatus(&p.status, &want) {
		t.Errorf("status %+v", p.status)
	}
	set.Spec.MinReadySeconds = 11
	p.count()
	if p.status.AvailableReplicas != 0 || p.status.ReadyReplicas != 3 {
		t.Errorf("%d available, %d ready", p.status.AvailableReplicas, p.status.ReadyReplicas)
	}
	// Of the pods that have been ready for ten seconds, the time will come in one.
	if next := p.nextCheck(); next != time.Second {
		t.Errorf("next check after %s", next)
	}
	// A clock that was set back makes nothing available early, one that is ahead forgets nothing.
	p.now = now.Add(-time.Hour)
	p.clock = clocktesting.NewFakePassiveClock(p.now)
	p.count()
	if next := p.nextCheck(); p.status.AvailableReplicas != 0 || next != time.Hour+time.Second {
		t.Errorf("%d available, next check after %s", p.status.AvailableReplicas, next)
	}
	p.clock = clocktesting.NewFakePassiveClock(now.Add(time.Hour))
	if next := p.nextCheck(); next != time.Millisecond {
		t.Errorf("next check after %s", next)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		size int32
		pods []string
		want string
	}{
		{"all new and ready", 2, []string{"0: ready new", "1: ready new"}, "new"},
		{"no replicas", 0, nil, "new"},
		{"one old", 2, []string{"0: ready", "1: ready new"}, "old"},
		{"one not ready", 2, []string{"0: new", "1: ready new"}, "old"},
		{"one too many", 1, []string{"0: ready new", "1: ready new"}, "old"},
		{"one missing", 3, []string{"0: ready new", "1: ready new"}, "old"},
		{"one going", 2, []string{"0: ready new", "1: ready new terminating"}, "old"},
	}
	for _, test := range tests {
		p := testPass(testSet(test.size), test.pods...)
		p.count()
		p.complete()
		if p.status.CurrentRevision != test.want || test.want == "new" && p.status.CurrentReplicas != test.size {
			t.Errorf("%s: %+v", test.name, p.status)
		}
	}
}

func TestProgressing(t *testing.T) {
	t.Parallel()
	set := testSet(1)
	set.Spec.UpdateStrategy.Type = appsv1.RecreateStatefulSetStrategyType
	p := testPass(set, "0: ready new")
	p.recreated()
	if len(p.status.Conditions) > 0 {
		t.Error("an end without a beginning was reported")
	}
	p.setProgressing(v1.ConditionTrue, recreateInProgress, "one")
	p.now = now.Add(time.Minute)
	p.setProgressing(v1.ConditionTrue, recreateInProgress, "two")
	if got := p.status.Conditions; len(got) != 1 || got[0].Message != "two" || !got[0].LastTransitionTime.Time.Equal(now) {
		t.Errorf("conditions %v", got)
	}
	p.recreated()
	if got := p.status.Conditions; got[0].Status != v1.ConditionFalse || !got[0].LastTransitionTime.Time.Equal(p.now) {
		t.Errorf("conditions %v", got)
	}
	set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	p.setProgressing(v1.ConditionTrue, recreateInProgress, "three")
	p.recreated()
	if got := p.status.Conditions; got[0].Status != v1.ConditionTrue {
		t.Error("the end of a rolling update was reported as that of a Recreate")
	}
}

func TestUrgent(t *testing.T) {
	t.Parallel()
	before := appsv1.StatefulSetStatus{
		ObservedGeneration: 3, Replicas: 5, ReadyReplicas: 2, AvailableReplicas: 2, CurrentReplicas: 5, UpdatedReplicas: 5,
		CurrentRevision: "a", UpdateRevision: "a",
	}
	tests := []struct {
		name   string
		change func(*appsv1.StatefulSetStatus)
		want   bool
	}{
		{"more ready", func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 4; s.AvailableReplicas = 3 }, false},
		{"all ready", func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 5 }, false},
		{"all ready and available", func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas, s.AvailableReplicas = 5, 5 }, true},
		{"all available, not updated", func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas, s.AvailableReplicas, s.UpdatedReplicas = 5, 5, 4 }, false},
		{"fewer ready", func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 1 }, false},
		{"fewer available", func(s *appsv1.StatefulSetStatus) { s.AvailableReplicas = 1 }, false},
		{"generation", func(s *appsv1.StatefulSetStatus) { s.ObservedGeneration = 4 }, true},
		{"replicas", func(s *appsv1.StatefulSetStatus) { s.Replicas = 6 }, false},
		{"current replicas", func(s *appsv1.StatefulSetStatus) { s.CurrentReplicas = 4 }, false},
		{"updated replicas", func(s *appsv1.StatefulSetStatus) { s.UpdatedReplicas = 4 }, false},
		{"revision", func(s *appsv1.StatefulSetStatus) { s.UpdateRevision = "b" }, true},
		{"collision", func(s *appsv1.StatefulSetStatus) { s.CollisionCount = ptr.To[int32](1) }, true},
		{"condition", func(s *appsv1.StatefulSetStatus) {
			s.Conditions = []appsv1.StatefulSetCondition{{Type: appsv1.StatefulSetProgressing}}
		}, true},
	}
	for _, test := range tests {
		after := before
		test.change(&after)
		if got := urgent(&before, &after, 5); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

func TestMetricsAreForgotten(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	m, err := newMetrics(registry) // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	set := testSet(1)
	inParallel(set)
	m.setMaxUnavailable(set, 1)
	m.setUnavailable(set, 1)
	series := func() int {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, family := range families {
			count += len(family.GetMetric())
		}
		return count
	}
	if got := series(); got != 2 {
		t.Errorf("%d series", got)
	}
	m.forget(testKey)
	if got := series(); got != 0 {
		t.Errorf("%d series are left", got)
	}
	// Nor are those of sets that go while the controller is stopped.
	m.setMaxUnavailable(set, 1)
	m.setUnavailable(set, 1)
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	if got := series(); got != 0 {
		t.Errorf("%d series are left after a restart", got)
	}
}
