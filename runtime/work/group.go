package work

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Marks makes a context whose successful writes are recorded, and a function
// that returns the highest resourceVersion written with it per resource.
type Marks func(ctx context.Context) (context.Context, func() map[schema.GroupResource]string)

// GroupOptions of a group. Only Name is required.
type GroupOptions struct {
	// Name of the controller, for the log.
	Name string
	// Logger. Default: slog.Default.
	Logger *slog.Logger
	// Clock. Default: the real one.
	Clock clock.WithTicker
	// MetricsProvider of the workqueue_* metrics. Default: nil, no metrics.
	MetricsProvider workqueue.MetricsProvider
	// DeleteMetrics is called once for each queue, with its name, when the
	// last of its reconciles has ended. May be nil.
	DeleteMetrics func(queueName string)
	// Marks and Reached make a key wait until the caches have seen what its
	// last reconcile wrote; both or neither. Reached tells whether the cache of
	// resource is at least as new as resourceVersion.
	Marks   Marks
	Reached func(resource schema.GroupResource, resourceVersion string) bool
	// StuckAfter is how long Drain waits for reconciles that it has
	// cancelled. Default: 5 s.
	StuckAfter time.Duration
}

// NewGroup makes a group without queues. It must be drained, even when it was never started.
func NewGroup(o GroupOptions) *Group { return &Group{} }

// Start lets every queue reconcile with workers at once, apart from those with
// FixedWorkers. When ctx ends, reconciles are cancelled and no further key is
// taken; Drain is needed all the same to wait for them. To be called once.
func (g *Group) Start(ctx context.Context, workers int) {}

// Resize sets the number of workers, at least 1. More take keys at once; of
// fewer, those that are too many finish their key first.
func (g *Group) Resize(workers int) {}

// Drain takes no further keys from now on; keys that wait are dropped.
// Reconciles under way finish with a live context until ctx ends, and are
// cancelled then. It returns when all have ended, or with a *StuckError when
// some have not StuckAfter after their cancellation.
func (g *Group) Drain(ctx context.Context) error { return nil }

// Done is closed when the group was drained and its last reconcile has ended.
func (g *Group) Done() <-chan struct{} { return nil }

// Failed delivers one *PanicError when a reconcile panics. The group takes no further keys then.
func (g *Group) Failed() <-chan error { return nil }

// Status of all queues together.
func (g *Group) Status() Status { return Status{} }

// Queues returns the status of each queue, in the order of their making.
func (g *Group) Queues() []QueueStatus { return nil }

// RunningKeys returns the reconciles that have run for longer than d, the longest first.
func (g *Group) RunningKeys(d time.Duration) []RunningKey { return nil }

// RunningKey is a reconcile under way.
type RunningKey struct {
	Queue string
	Key   string
	For   time.Duration
}

// PanicError is a reconcile that panicked.
type PanicError struct {
	Queue string
	Key   string
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("queue %s: reconcile of %s panicked: %v", e.Queue, e.Key, e.Value)
}

// StuckError names the reconciles that do not end although they were cancelled.
type StuckError struct {
	Keys []RunningKey
}

func (e *StuckError) Error() string {
	var b strings.Builder
	b.WriteString("reconciles that ignore their cancelled context: ")
	for i, k := range e.Keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s (for %s)", k.Queue, k.Key, k.For.Round(time.Millisecond))
	}
	return b.String()
}
