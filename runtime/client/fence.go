package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ErrFenced is returned for a mutating request that was refused, or cancelled
// in flight, because this process may no longer hold the leader lease.
var ErrFenced = errors.New("this process may not hold the leader lease")

// Fence refuses writes once the leader lease may have expired. It starts shut.
//
// The monotonic clock alone does not count the time that a machine is
// suspended, and the wall clock can be set back. So both are kept, and the
// fence is shut when either says that the time is over.
type Fence struct {
	clock clock.WithDelayedExecution
	// monotonic is the time since some moment before the first use.
	monotonic func() time.Duration
	refused   atomic.Int64

	mu sync.Mutex
	// term ends when the fence shuts; nil while it is shut.
	term    context.Context
	endTerm context.CancelCauseFunc
	always  bool
	// deadline by each clock; wallDeadline is what Deadline returns.
	deadline     time.Duration
	wallDeadline time.Time
	timer        clock.Timer
}

// NewFence makes a fence that is shut, on a clock that is nil for the real one.
func NewFence(c clock.WithDelayedExecution) *Fence {
	if c == nil {
		c = clock.RealClock{}
	}
	start := c.Now()
	return &Fence{clock: c, monotonic: func() time.Duration { return c.Since(start) }}
}

// Extend opens the fence until a time of this process's clock. The last call
// counts, also when it names an earlier time than the one before.
func (f *Fence) Extend(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.always = false
	f.deadline = f.monotonic() + until.Sub(f.clock.Now())
	f.wallDeadline = until.Round(0) // without its monotonic reading
	left := f.left()
	if left <= 0 {
		f.shut()
		return
	}
	f.open()
	if f.timer == nil {
		f.timer = f.clock.AfterFunc(left, f.expire)
	} else {
		f.timer.Reset(left)
	}
}

// Shut refuses writes from now on, and cancels those in flight.
func (f *Fence) Shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut()
}

// OpenAlways lets every write pass until Shut; for a process without leader election.
func (f *Fence) OpenAlways() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.always = true
	f.open()
}

// Allow returns nil while writes may pass, else ErrFenced.
func (f *Fence) Allow() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isOpen() {
		return ErrFenced
	}
	return nil
}

// Refused is the number of requests that were refused or cancelled.
func (f *Fence) Refused() int64 { return f.refused.Load() }

// Deadline until which the fence is open; zero when it is shut or always open.
func (f *Fence) Deadline() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isOpen() || f.always {
		return time.Time{}
	}
	return f.wallDeadline
}

// guard returns a context for one write, which is cancelled with ErrFenced when
// the fence shuts, however often it is extended before. The caller releases it.
func (f *Fence) guard(ctx context.Context) (_ context.Context, release func(), err error) {
	f.mu.Lock()
	open, term := f.isOpen(), f.term
	f.mu.Unlock()
	if !open {
		return nil, nil, ErrFenced
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(term, func() { cancel(ErrFenced) })
	return ctx, func() {
		stop()
		cancel(nil)
	}, nil
}

// The rest is called with mu held.

func (f *Fence) left() time.Duration {
	return min(f.deadline-f.monotonic(), f.wallDeadline.Sub(f.clock.Now().Round(0)))
}

// isOpen also shuts the fence when its time is over and the timer is late, as
// it is after the process was stopped or the machine suspended.
func (f *Fence) isOpen() bool {
	if f.term != nil && !f.always && f.left() <= 0 {
		f.shut()
	}
	return f.term != nil
}

func (f *Fence) open() {
	if f.term == nil {
		f.term, f.endTerm = context.WithCancelCause(context.Background())
	}
}

func (f *Fence) shut() {
	f.always = false
	if f.term != nil {
		f.endTerm(ErrFenced)
		f.term, f.endTerm = nil, nil
	}
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

func (f *Fence) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The fence may have been extended while the timer fired.
	if f.isOpen() && !f.always && f.timer != nil {
		f.timer.Reset(f.left())
	}
}
