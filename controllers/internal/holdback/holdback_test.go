package holdback_test

import (
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
)

func TestWritesAreHeldBackForATime(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	writes := holdback.New[string](500 * time.Millisecond)
	for _, step := range []struct {
		key  string
		at   time.Duration
		want time.Duration
	}{
		{"a", 0, 500 * time.Millisecond},
		{"a", 200 * time.Millisecond, 300 * time.Millisecond},
		{"b", 400 * time.Millisecond, 500 * time.Millisecond},
		{"a", 500 * time.Millisecond, 0},
		{"a", time.Hour, 0},
		{"a", -time.Hour, 0},
	} {
		if got := writes.Wait(step.key, begin.Add(step.at)); got != step.want {
			t.Errorf("%s at %s: wait %s, want %s", step.key, step.at, got, step.want)
		}
	}
	writes.Written("a")
	if got := writes.Wait("a", begin.Add(time.Hour)); got != writes.Longest() {
		t.Errorf("after the write: wait %s", got)
	}
}
