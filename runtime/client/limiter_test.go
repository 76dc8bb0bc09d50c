package client

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// waits lets n requests wait at once and returns how long the last one took.
func waits(t *testing.T, l *limiter, n int) time.Duration {
	t.Helper()
	start := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := l.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return time.Since(start)
}

func TestLimiter(t *testing.T) {
	tests := []struct {
		name  string
		qps   float64
		burst int
		n     int
		want  time.Duration
	}{
		{"none", 0, 0, 10000, 0},
		{"burst", 10, 5, 5, 0},
		{"beyond the burst", 10, 5, 25, 2 * time.Second},
		{"burst is 1 at least", 10, 0, 11, time.Second},
		{"less than one a second", 0.5, 1, 2, 2 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := waits(t, newLimiter(test.qps, test.burst), test.n); got.Round(time.Millisecond) != test.want {
					t.Errorf("took %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestLimitsChangeForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(0.01, 1)
		time.AfterFunc(3*time.Second, func() { l.set(10, 1) })
		time.AfterFunc(4*time.Second, func() { l.set(0, 0) })
		// One at once, eleven in the fourth second, the rest when there is no limit.
		if got := waits(t, l, 100); got != 4*time.Second {
			t.Errorf("took %s, want 4s", got)
		}
	})
}

func TestEqualLimitsKeepTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1, 5)
		waits(t, l, 5)
		l.set(1, 5)
		if got := waits(t, l, 1); got != time.Second {
			t.Errorf("took %s, want 1s: setting the same limits again must not give a new burst", got)
		}
	})
}

func TestLimiterHeedsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(0.01, 1)
		waits(t, l, 1)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := l.Wait(ctx); err == nil || !strings.Contains(err.Error(), "client-side rate limit") || time.Since(start) != 0 {
			t.Errorf("%v after %s; want it to say at once that the deadline is too early", err, time.Since(start))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		if err := l.Wait(ctx); err == nil || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %s, want the context's end after 10s", err, time.Since(start))
		}
		if got := waits(t, l, 1); got.Round(time.Second) != 90*time.Second {
			t.Errorf("the next one waited %s, want 1m30s: those who gave up must not use tokens", got)
		}
	})
}
