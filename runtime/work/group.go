package work

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const defaultStuckAfter = 5 * time.Second

// Marks makes a context whose successful writes are recorded, and a function
// that returns the highest resourceVersion written with it per resource.
type Marks func(ctx context.Context) (context.Context, func() map[schema.GroupResource]string)

// GroupOptions of a group. None is required.
type GroupOptions struct {
	// Name of the controller, for the log. Default: empty, not logged.
	Name string
	// Logger. Default: slog.Default.
	Logger *slog.Logger
	// Clock. Default: the real one.
	Clock clock.WithTicker
	// MetricsProvider of the workqueue_* metrics. Default: nil, no metrics.
	MetricsProvider workqueue.MetricsProvider
	// DeleteMetrics is called once for each queue, with its name, when the
	// group was drained and its last reconcile has ended. May be nil.
	DeleteMetrics func(queueName string)
	// Marks and Reached make a key wait until the caches have seen what its
	// last reconcile wrote; both or neither. Reached tells whether the cache of
	// resource is at least as new as resourceVersion.
	Marks   Marks
	Reached func(resource schema.GroupResource, resourceVersion string) bool
	// Unfinished keys of the controller's last group are added to the queues of
	// their names, which leave their own there. Default: nil, none are known.
	Unfinished *Unfinished
	// Refused tells that a reconcile failed because this process may not write
	// at present. That is no fault of the key, and not logged as one. May be nil.
	Refused func(error) bool
	// StuckAfter is how long Drain waits for reconciles that it has
	// cancelled. Default: 5 s.
	StuckAfter time.Duration
}

// Group owns the queues of one life of a controller, and all goroutines that work on them.
type Group struct {
	options GroupOptions
	failed  chan error
	done    chan struct{}
	// goroutines are the dispatchers and the reconciles.
	goroutines sync.WaitGroup

	mu      sync.Mutex
	queues  []queue
	workers int
	started bool
	closed  bool
	discard bool
	// ctx of the reconciles, from Start on.
	ctx        context.Context
	cancel     context.CancelFunc
	stopFollow func() bool
	waitForEnd sync.Once
	failOnce   sync.Once
}

// queue is a Queue of any key.
type queue interface {
	name() string
	dispatch(ctx context.Context)
	resize(workers int)
	close()
	leave()
	status(now time.Time) QueueStatus
	runningKeys(now time.Time) []RunningKey
}

// NewGroup makes a group without queues. It must be drained, even when it was never started.
func NewGroup(o GroupOptions) *Group {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Name != "" {
		o.Logger = o.Logger.With("controller", o.Name)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.StuckAfter <= 0 {
		o.StuckAfter = defaultStuckAfter
	}
	return &Group{
		options:    o,
		failed:     make(chan error, 1),
		done:       make(chan struct{}),
		cancel:     func() {},
		stopFollow: func() bool { return true },
	}
}

// add is called with every new queue. One that is made after Start starts at once.
func (g *Group) add(q queue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queues = append(g.queues, q)
	switch {
	case g.closed:
		q.close()
	case g.started:
		g.startLocked(q)
	}
}

// Start lets every queue reconcile with workers at once, apart from those with
// FixedWorkers. When ctx ends, reconciles are cancelled and no further key is
// taken; Drain is needed all the same to wait for them. To be called once.
func (g *Group) Start(ctx context.Context, workers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.started {
		return
	}
	g.started = true
	g.workers = max(workers, 1)
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.stopFollow = context.AfterFunc(ctx, g.close)
	for _, q := range g.queues {
		g.startLocked(q)
	}
}

func (g *Group) startLocked(q queue) {
	q.resize(g.workers)
	ctx := g.ctx
	g.goroutines.Go(func() { q.dispatch(ctx) })
}

// Resize sets the number of workers, at least 1. More take keys at once; of
// fewer, those that are too many finish their key first. Before Start it does nothing.
func (g *Group) Resize(workers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.started {
		return
	}
	g.workers = max(workers, 1)
	for _, q := range g.queues {
		q.resize(g.workers)
	}
}

// close lets no queue take a further key.
func (g *Group) close() {
	g.mu.Lock()
	g.closed = true
	queues := g.queues
	g.mu.Unlock()
	for _, q := range queues {
		q.close()
	}
}

// fail reports the first panic.
func (g *Group) fail(err *PanicError) {
	g.options.Logger.Error("Reconcile panicked", "queue", err.Queue, "key", err.Key, "panic", err.Value, "stack", string(err.Stack))
	g.failOnce.Do(func() { g.failed <- err })
	g.close()
}

// Failed delivers one *PanicError when a reconcile panics. The group takes no
// further keys then; it must be drained still.
func (g *Group) Failed() <-chan error { return g.failed }

// Discard lets the group forget its keys when it is drained, instead of leaving
// them to the next group as Unfinished. To be called before Drain.
func (g *Group) Discard() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.discard = true
}

// Drain takes no further keys from now on; keys that wait are left to the next
// group, if there is GroupOptions.Unfinished, and dropped otherwise.
// Reconciles under way finish with a live context until ctx ends, and are
// cancelled then. It returns when all have ended, or with a *StuckError when
// some have not StuckAfter after their cancellation. It may be called again.
func (g *Group) Drain(ctx context.Context) error {
	g.close()
	g.waitForEnd.Do(func() { go g.finish() })
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	cancel := g.cancel
	g.mu.Unlock()
	cancel()
	timer := g.options.Clock.NewTimer(g.options.StuckAfter)
	defer timer.Stop()
	select {
	case <-g.done:
		return nil
	case <-timer.C():
		return &StuckError{Keys: g.RunningKeys(0)}
	}
}

// finish ends with the last reconcile, and closes done.
func (g *Group) finish() {
	g.goroutines.Wait()
	g.mu.Lock()
	stopFollow, cancel, discard := g.stopFollow, g.cancel, g.discard
	g.mu.Unlock()
	stopFollow()
	cancel()
	for _, q := range g.allQueues() {
		if !discard {
			q.leave()
		}
		if g.options.DeleteMetrics != nil {
			g.options.DeleteMetrics(q.name())
		}
	}
	close(g.done)
}

// Done is closed when the group was drained and its last reconcile has ended.
func (g *Group) Done() <-chan struct{} { return g.done }

// RunningKeys returns the reconciles that have run for at least d, the longest first.
func (g *Group) RunningKeys(d time.Duration) []RunningKey {
	now := g.options.Clock.Now()
	var keys []RunningKey
	for _, q := range g.allQueues() {
		keys = append(keys, q.runningKeys(now)...)
	}
	keys = slices.DeleteFunc(keys, func(k RunningKey) bool { return k.For < d })
	slices.SortFunc(keys, func(a, b RunningKey) int { return cmp.Compare(b.For, a.For) })
	return keys
}

func (g *Group) allQueues() []queue {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.queues)
}
