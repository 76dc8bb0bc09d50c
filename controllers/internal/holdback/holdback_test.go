package holdback_test

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
)

func TestBook(t *testing.T) {
	t.Parallel()
	book := holdback.NewBook()
	web, db := cache.NewObjectName("ns", "web"), cache.NewObjectName("ns", "db")
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct{ at, want time.Duration }{
		{0, holdback.Longest},
		{holdback.Longest / 4, 3 * holdback.Longest / 4},
		{holdback.Longest, 0},
		{time.Hour, 0},
		{-holdback.Longest / 4, 3 * holdback.Longest / 4}, // the clock was set back
		{-time.Hour, 0},
	} {
		if got := book.Wait(web, start.Add(step.at)); got != step.want {
			t.Errorf("after %s: %s, want %s", step.at, got, step.want)
		}
	}
	if got := book.Wait(db, start.Add(time.Hour)); got != holdback.Longest {
		t.Errorf("another key: %s", got)
	}
	book.Written(web)
	if got := book.Wait(web, start.Add(time.Hour)); got != holdback.Longest {
		t.Errorf("after a write: %s", got)
	}
}

func TestTurned(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		before, after, goal int32
		want                bool
	}{
		{2, 2, 5, false}, {2, 4, 5, false}, {2, 5, 5, true}, {2, 6, 5, true}, {5, 5, 5, false}, {5, 4, 5, true}, {2, 1, 5, true},
		{-3, -1, 0, false}, {-1, 0, 0, true}, {-1, -2, 0, true},
	} {
		if got := holdback.Turned(test.before, test.after, test.goal); got != test.want {
			t.Errorf("from %d to %d of %d: %t", test.before, test.after, test.goal, got)
		}
	}
}
