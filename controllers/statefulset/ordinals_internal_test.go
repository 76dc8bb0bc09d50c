package statefulset

import (
	"fmt"
	"math"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
)

func TestSplitName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, parent string
		ordinal      int
		ok           bool
	}{
		{"web-0", "web", 0, true},
		{"web-10", "web", 10, true},
		{"my-web-7", "my-web", 7, true},
		{"web-2147483647", "web", math.MaxInt32, true},
		{"web-2147483648", "", 0, false},
		{"web-99999999999999999999", "", 0, false},
		{"web-01", "", 0, false},
		{"web-+1", "", 0, false},
		{"web--1", "web-", 1, true}, // the set "web-" cannot be, but its name would be this
		{"web-9x", "", 0, false},
		{"web-", "", 0, false},
		{"web", "", 0, false},
		{"-1", "", 1, true},
		{"", "", 0, false},
	}
	for _, test := range tests {
		parent, ordinal, ok := splitName(test.name)
		if ok != test.ok || ok && (parent != test.parent || ordinal != test.ordinal) {
			t.Errorf("%q: %q, %d, %t", test.name, parent, ordinal, ok)
		}
	}
}

func FuzzSplitName(f *testing.F) {
	for _, name := range []string{"web-0", "a-b-12", "web-01", "-", "web-2147483648", "\xff-1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if parent, ordinal, ok := splitName(name); ok && nameOf(parent, ordinal) != name {
			t.Errorf("%q is %q", name, nameOf(parent, ordinal))
		}
	})
}

func TestOrdinals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		replicas           *int32
		start              int32
		first, last, count int
	}{
		{nil, 0, 0, 0, 1},
		{ptr.To[int32](0), 0, 0, -1, 0},
		{ptr.To[int32](3), 2, 2, 4, 3},
		{ptr.To[int32](math.MaxInt32), 0, 0, math.MaxInt32 - 1, math.MaxInt32},
		{ptr.To[int32](math.MaxInt32), math.MaxInt32, math.MaxInt32, math.MaxInt32, 1},
	}
	for _, test := range tests {
		set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
			Replicas: test.replicas, Ordinals: &appsv1.StatefulSetOrdinals{Start: test.start},
		}}
		got := ordinalsOf(set)
		if got.first != test.first || got.last != test.last || got.count() != test.count {
			t.Errorf("%+v: %+v, count %d", test, got, got.count())
		}
	}
}

func TestComesBack(t *testing.T) {
	t.Parallel()
	rolling := appsv1.RollingUpdateStatefulSetStrategyType
	tests := []struct {
		name      string
		strategy  appsv1.StatefulSetUpdateStrategyType
		partition *int32
		parallel  bool
		start     int32
		current   int
		// old are the ordinals from start that come back as they were.
		old int
	}{
		{name: "no partition", strategy: rolling, partition: ptr.To[int32](0), current: 3, old: 0},
		{name: "partition", strategy: rolling, partition: ptr.To[int32](2), current: 0, old: 2},
		{name: "partition counts from the first ordinal", strategy: rolling, partition: ptr.To[int32](2), start: 5, old: 2},
		{name: "no rollingUpdate", strategy: rolling, current: 3, old: 3},
		{name: "no rollingUpdate, later start", strategy: rolling, current: 3, start: 5, old: 3},
		{name: "no rollingUpdate, parallel", strategy: rolling, current: 3, parallel: true, old: 0},
		{name: "OnDelete", strategy: appsv1.OnDeleteStatefulSetStrategyType, current: 3, old: 0},
		{name: "Recreate", strategy: appsv1.RecreateStatefulSetStrategyType, current: 3, old: 0},
	}
	for _, test := range tests {
		set := testSet(5)
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: test.start}
		set.Spec.UpdateStrategy.Type = test.strategy
		if test.partition != nil {
			set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: test.partition}
		}
		if test.parallel {
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}
		old := 0
		for i := range 5 {
			if comesBack(set, test.current, int(test.start)+i) {
				old++
			}
		}
		if old != test.old {
			t.Errorf("%s: %d come back as they were, want %d", test.name, old, test.old)
		}
	}
}

// An absurd number of replicas costs neither memory nor time.
func TestSlotsAreBounded(t *testing.T) {
	t.Parallel()
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.ParallelPodManagement, appsv1.OrderedReadyPodManagement} {
		p := testPass(testSet(math.MaxInt32), "0: ready", fmt.Sprint(math.MaxInt32-1, ": ready"))
		p.set.Spec.PodManagementPolicy = policy
		slots := p.slots()
		want, last := 2, 1
		if policy == appsv1.ParallelPodManagement {
			want, last = burst+2, math.MaxInt32-1
		}
		if len(slots) != want || slots[0].pod == nil || slots[1].pod != nil || slots[len(slots)-1].ordinal != last {
			t.Errorf("%s: %d slots, the last of %d", policy, len(slots), slots[len(slots)-1].ordinal)
		}
	}
}
