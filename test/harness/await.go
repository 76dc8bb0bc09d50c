package harness

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Conditions are polled every pollInterval, and every slowInterval when they
// take long: many tests at once would keep the API server busy otherwise.
const (
	pollInterval = 20 * time.Millisecond
	slowInterval = 50 * time.Millisecond
	slowAfter    = 500 * time.Millisecond
)

// Eventually waits until condition returns nil, and fails the test with its
// last error when it does not within a time. Each call has a context that ends then.
func Eventually(t testing.TB, within time.Duration, what string, condition func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	began := time.Now()
	var last error
	for {
		if time.Since(began) > slowAfter {
			ticker.Reset(slowInterval)
		}
		err := condition(ctx)
		if err == nil {
			return
		}
		// What was wrong with the cluster says more than the end of time.
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("no %s after %s: %v", what, within, last)
		}
	}
}

// Throughout fails the test when condition returns an error at any time during d.
func Throughout(t testing.TB, d time.Duration, what string, condition func(ctx context.Context) error) {
	t.Helper()
	ticker := time.NewTicker(slowInterval)
	defer ticker.Stop()
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		if err := condition(t.Context()); err != nil {
			t.Fatalf("%s ended: %v", what, err)
		}
		select {
		case <-ticker.C:
		case <-end.C:
			return
		}
	}
}
