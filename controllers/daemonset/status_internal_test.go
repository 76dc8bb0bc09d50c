package daemonset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
)

func TestCount(t *testing.T) {
	t.Parallel()
	ds := template()
	ds.Generation = 7
	for _, test := range []struct {
		name  string
		nodes []string
		want  counts
	}{
		{"nothing", nil, counts{}},
		{"all kinds", []string{
			"a run: new-available", "b run: new-ready", "c run: old-available", "d run: new", "e run:",
			"f stay: new-available", "g no: old", "h no:", "i gone: new-bound",
		}, counts{desired: 5, current: 4, misscheduled: 2, ready: 3, updated: 3, available: 2}},
		{"the older of two", []string{"a run: old-available new"}, counts{desired: 1, current: 1, ready: 1, available: 1}},
		{"the bound one of two", []string{"a run: old-available new-bound"}, counts{desired: 1, current: 1, updated: 1}},
		{"one that goes", []string{"a run: new-available-going"}, counts{desired: 1, current: 1, updated: 1, ready: 1, available: 1}},
		{"one that has failed and goes", []string{"a run: new-failed-going"}, counts{desired: 1}},
	} {
		test.want.observedGeneration = 7
		if got := plannerOf(test.nodes...).count(ds); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestCountsInAStatus(t *testing.T) {
	t.Parallel()
	status := appsv1.DaemonSetStatus{
		CollisionCount: ptr.To[int32](3), Conditions: []appsv1.DaemonSetCondition{{Type: "Own"}}, NumberUnavailable: 9,
	}
	want := counts{desired: 5, current: 4, misscheduled: 1, ready: 3, updated: 2, available: 1, observedGeneration: 6}
	want.into(&status)
	if got := storedCounts(&status); got != want {
		t.Errorf("stored %+v", got)
	}
	if status.NumberUnavailable != 4 || *status.CollisionCount != 3 || len(status.Conditions) != 1 {
		t.Errorf("status %+v", status)
	}
}

func TestUrgent(t *testing.T) {
	t.Parallel()
	before := counts{desired: 5, current: 3, ready: 2, updated: 3, available: 2, observedGeneration: 1}
	for name, test := range map[string]struct {
		change func(*counts)
		want   bool
	}{
		"nothing":                   {func(*counts) {}, false},
		"more ready":                {func(c *counts) { c.ready, c.available = 4, 3 }, false},
		"more of all, on their way": {func(c *counts) { c.current, c.updated, c.ready, c.available = 4, 4, 4, 4 }, false},
		"all ready":                 {func(c *counts) { c.ready = 5 }, false},
		"all there":                 {func(c *counts) { c.current = 5 }, false},
		"all complete":              {func(c *counts) { c.current, c.updated, c.ready, c.available = 5, 5, 5, 5 }, true},
		"fewer ready":               {func(c *counts) { c.ready = 1 }, false},
		"fewer there":               {func(c *counts) { c.current = 2 }, false},
		"more wanted":               {func(c *counts) { c.desired = 6 }, true},
		"misscheduled":              {func(c *counts) { c.misscheduled = 1 }, true},
		"seen":                      {func(c *counts) { c.observedGeneration = 2 }, true},
	} {
		after := before
		test.change(&after)
		if got := urgent(before, after); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
