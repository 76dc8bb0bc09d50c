package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/flowcontrol"
)

// limiter is the token bucket of one controller. Its limits change while
// requests wait for it.
type limiter struct {
	mu     sync.Mutex
	bucket *rate.Limiter
	// changed is closed when bucket was replaced.
	changed chan struct{}
}

var _ flowcontrol.RateLimiter = (*limiter)(nil)

func newLimiter(qps float64, burst int) *limiter {
	l := &limiter{changed: make(chan struct{})}
	l.set(qps, burst)
	return l
}

// set takes new limits, 0 qps for none, with a full bucket. Requests that wait
// already wait by the new ones.
func (l *limiter) set(qps float64, burst int) {
	limit := rate.Limit(qps)
	if qps <= 0 {
		limit = rate.Inf
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket != nil && l.bucket.Limit() == limit && l.bucket.Burst() == max(burst, 1) {
		return
	}
	l.bucket = rate.NewLimiter(limit, max(burst, 1))
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *limiter) current() (*rate.Limiter, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bucket, l.changed
}

// Wait returns when a request may be sent, or soon after ctx ends.
func (l *limiter) Wait(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		bucket, changed := l.current()
		token := bucket.Reserve()
		delay := token.Delay()
		if delay == 0 {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
			token.Cancel()
			return fmt.Errorf("client-side rate limit: a wait of %s would exceed the context's deadline", delay)
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
			return nil
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			token.Cancel()
			return ctx.Err()
		}
	}
}

// Accept waits without end. Part of flowcontrol.RateLimiter.
func (l *limiter) Accept() { _ = l.Wait(context.Background()) }

// TryAccept is part of flowcontrol.RateLimiter.
func (l *limiter) TryAccept() bool {
	bucket, _ := l.current()
	return bucket.Allow()
}

// Stop is part of flowcontrol.RateLimiter.
func (l *limiter) Stop() {}

// QPS is part of flowcontrol.RateLimiter.
func (l *limiter) QPS() float32 {
	bucket, _ := l.current()
	return float32(bucket.Limit())
}
