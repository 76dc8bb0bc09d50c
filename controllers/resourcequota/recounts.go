package resourcequota

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// recounts come once a period, which may change meanwhile. The first count is
// that of the initial list.
type recounts struct {
	clock clock.WithTicker

	mu     sync.Mutex
	period time.Duration
	// changed has an element when period has changed.
	changed chan struct{}
}

func newRecounts(c clock.WithTicker, period time.Duration) *recounts {
	return &recounts{clock: c, period: period, changed: make(chan struct{}, 1)}
}

// set another period, which begins now; 0 ends recounts.
func (r *recounts) set(period time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.period == period {
		return
	}
	r.period = period
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run calls recount once a period until ctx ends.
func (r *recounts) run(ctx context.Context, recount func()) error {
	for {
		r.mu.Lock()
		period := r.period
		r.mu.Unlock()
		var due <-chan time.Time
		stop := func() {}
		if period > 0 {
			timer := r.clock.NewTimer(period)
			due, stop = timer.C(), func() { timer.Stop() }
		}
		select {
		case <-due:
			recount()
		case <-r.changed:
			stop()
		case <-ctx.Done():
			stop()
			return nil
		}
	}
}
