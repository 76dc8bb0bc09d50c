package slowstart_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/slowstart"
)

var errRefused = errors.New("refused")

func TestRun(t *testing.T) {
	for _, test := range []struct {
		name             string
		count, allowed   int
		calls, succeeded int
	}{
		{"nothing to do", 0, 0, 0, 0},
		{"one", 1, 1, 1, 1},
		{"all succeed", 10, 10, 10, 10},
		{"all fail", 10, 0, 1, 0},
		{"four of ten allowed", 10, 4, 7, 4},
		{"exactly a batch allowed", 7, 3, 7, 3},
		{"last batch is cut", 8, 7, 8, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			var calls, allowed atomic.Int64
			allowed.Store(int64(test.allowed))
			succeeded, err := slowstart.Run(t.Context(), test.count, func(context.Context, int) error {
				calls.Add(1)
				if allowed.Add(-1) < 0 {
					return errRefused
				}
				return nil
			})
			if int(calls.Load()) != test.calls || succeeded != test.succeeded {
				t.Errorf("%d calls with %d successes, want %d with %d", calls.Load(), succeeded, test.calls, test.succeeded)
			}
			if failed := test.succeeded < test.count; failed != errors.Is(err, errRefused) {
				t.Errorf("error %v, want one: %t", err, failed)
			}
		})
	}
}

// Whatever fails: each number is called at most once, in batches that double,
// nothing is called after a batch with a failure, and the count is right.
func TestRunProperties(t *testing.T) {
	for range 500 {
		count := rand.IntN(200)
		fails := map[int]bool{}
		for range rand.IntN(4) {
			fails[rand.IntN(200)] = true
		}
		want, wantCalled := 0, 0
		for start, size := 0, 1; start < count; start, size = start+size, 2*size {
			size = min(size, count-start)
			bad := false
			for i := start; i < start+size; i++ {
				wantCalled++
				if fails[i] {
					bad = true
				} else {
					want++
				}
			}
			if bad {
				break
			}
		}

		var mu sync.Mutex
		called := map[int]int{}
		succeeded, err := slowstart.Run(t.Context(), count, func(_ context.Context, i int) error {
			mu.Lock()
			defer mu.Unlock()
			called[i]++
			if fails[i] {
				return errRefused
			}
			return nil
		})
		if succeeded != want || len(called) != wantCalled || (err == nil) != (want == count) {
			t.Fatalf("count %d, failing %v: %d successes of %d calls and %v, want %d of %d",
				count, fails, succeeded, len(called), err, want, wantCalled)
		}
		for i, n := range called {
			if n != 1 || i < 0 || i >= count {
				t.Fatalf("count %d: number %d called %d times", count, i, n)
			}
		}
	}
}

func TestRunCallsABatchAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if _, err := slowstart.Run(t.Context(), 7, func(context.Context, int) error {
			<-time.After(time.Second)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("batches of 1, 2 and 4 calls of 1s took %s, want 3s", took)
		}
	})
}

func TestRunCallsNoMoreThanItMayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		if _, err := slowstart.Run(t.Context(), 3000, func(context.Context, int) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if most != 500 {
			t.Errorf("%d calls at once, want 500", most)
		}
	})
}

func TestRunStopsBetweenBatches(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int64
	succeeded, err := slowstart.Run(ctx, 100, func(_ context.Context, i int) error {
		calls.Add(1)
		if i == 2 {
			cancel()
		}
		return nil
	})
	if succeeded != 3 || calls.Load() != 3 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d successes, %d calls, error %v; want 3, 3 and %v", succeeded, calls.Load(), err, context.Canceled)
	}
}
