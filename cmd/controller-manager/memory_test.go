package main

import (
	"runtime/debug"
	"testing"
)

func TestWhoSetsTheLimitsOfGarbageHasThem(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, test := range []struct {
		set  string
		want int
	}{
		{"", gcPercent},
		{"GOGC", 100},
		{"GOMEMLIMIT", 100},
	} {
		debug.SetGCPercent(100)
		limitGarbage(func(name string) (string, bool) { return "", name == test.set })
		if got := debug.SetGCPercent(100); got != test.want {
			t.Errorf("%q set: percent %d, want %d", test.set, got, test.want)
		}
	}
}
