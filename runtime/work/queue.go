package work

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const defaultSlowRetry = 5 * time.Minute

// Options of a queue. Name and Reconcile are required.
type Options[K comparable] struct {
	// Name is the name label of the workqueue_* metrics.
	Name      string
	Reconcile Reconciler[K]
	// FixedWorkers ignores the configured number of workers; 0 does not.
	FixedWorkers int
	// MaxRetries with back-off, after which a failing key is tried every
	// SlowRetry only. Default: 0, no limit.
	MaxRetries int
	// SlowRetry. Default: 5 minutes.
	SlowRetry time.Duration
	// Limiter says how long a failing key waits. Default: client-go's
	// DefaultTypedControllerRateLimiter, from 5 ms on.
	Limiter workqueue.TypedRateLimiter[K]
	// OnStale is called when a reconcile is put off because the cache of the
	// resource has not seen the key's own last write yet. May be nil.
	OnStale func(resource schema.GroupResource)
}

// ObjectName is the usual key.
type ObjectName = cache.ObjectName

// Queue hands keys to reconciles. A key is never reconciled twice at once.
//
// Keys may be added before the group starts; they wait. After it was drained,
// or has failed, additions are left to the next group (GroupOptions.Unfinished).
type Queue[K comparable] struct {
	group   *Group
	options Options[K]
	logger  *slog.Logger

	lanes   *lanes[K]
	limiter workqueue.TypedRateLimiter[K]
	queue   workqueue.TypedDelayingInterface[K]
	// marks and putOff are nil when the group has no Marks. putOff feeds the
	// same queue; waits for a cache are kept apart from it because they are no retries.
	marks  *marks[K]
	putOff workqueue.TypedDelayingInterface[K]

	mu sync.Mutex
	// freed is signalled when a worker may be free, or none will take a key any more.
	freed   *sync.Cond
	workers int
	closed  bool
	// running keys, since when.
	running map[K]time.Time
	// undone keys were taken last without success, and wait for another try.
	undone      map[K]struct{}
	lastError   string
	lastErrorAt time.Time
}

// NewQueue makes a queue that the engine starts, resizes, drains and stops with its group.
func NewQueue[K comparable](g *Group, o Options[K]) *Queue[K] {
	if o.SlowRetry <= 0 {
		o.SlowRetry = defaultSlowRetry
	}
	if o.Limiter == nil {
		o.Limiter = workqueue.DefaultTypedControllerRateLimiter[K]()
	}
	q := &Queue[K]{
		group:   g,
		options: o,
		logger:  g.options.Logger.With("queue", o.Name),
		lanes:   newLanes[K](g.options.Clock.Now),
		limiter: o.Limiter,
		running: map[K]time.Time{},
		undone:  map[K]struct{}{},
	}
	q.freed = sync.NewCond(&q.mu)

	metricName := o.Name
	if g.options.MetricsProvider == nil {
		metricName = "" // or client-go would use the provider of the process
	}
	klogger := logr.FromSlogHandler(q.logger.Handler())
	typed := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
		Name: metricName, MetricsProvider: g.options.MetricsProvider, Clock: g.options.Clock, Queue: q.lanes,
	})
	q.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
		Name: metricName, MetricsProvider: g.options.MetricsProvider, Clock: g.options.Clock, Queue: typed, Logger: &klogger,
	})
	if g.options.Marks != nil {
		q.marks = newMarks[K](g.options.Reached, g.options.Clock)
		q.putOff = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Clock: g.options.Clock, Queue: typed, Logger: &klogger,
		})
	}
	for key := range takeUnfinished[K](g.options.Unfinished, o.Name) {
		q.Add(key)
	}
	g.add(q)
	return q
}

// Add adds key now. It is reconciled whatever restarts come between.
func (q *Queue[K]) Add(key K) {
	q.lanes.willAdd(key, liveLane)
	q.queue.Add(key)
}

// AddInitial adds key now, behind keys of live events and those that the
// controller's last group left undone; for initial lists.
func (q *Queue[K]) AddInitial(key K) {
	q.lanes.willAdd(key, initialLane)
	q.queue.Add(key)
}

// AddEvent adds key, behind live events when isInInitialList is true.
func (q *Queue[K]) AddEvent(key K, isInInitialList bool) {
	if isInInitialList {
		q.AddInitial(key)
	} else {
		q.Add(key)
	}
}

// AddAfter adds key after d; of several waits for a key the earliest counts. The
// wait ends with the group.
func (q *Queue[K]) AddAfter(key K, d time.Duration) { q.queue.AddAfter(key, d) }

// AddRateLimited adds key after its back-off, as a failed reconcile does.
func (q *Queue[K]) AddRateLimited(key K) { q.queue.AddAfter(key, q.limiter.When(key)) }

// dispatch gives every key a goroutine of its own while a worker is free,
// until the queue is closed. A worker is nothing but the right to be one of
// those goroutines, so that their number can change at any time.
func (q *Queue[K]) dispatch(ctx context.Context) {
	for q.awaitWorker(ctx) {
		key, shutdown := q.queue.Get()
		if shutdown {
			return
		}
		if !q.begin(ctx, key) {
			return
		}
		q.group.goroutines.Go(func() {
			defer q.end(key)
			q.handle(ctx, key)
		})
	}
}

// awaitWorker returns true when a worker is free, false when no key may be taken any more.
func (q *Queue[K]) awaitWorker(ctx context.Context) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.awaitWorkerLocked(ctx)
}

func (q *Queue[K]) awaitWorkerLocked(ctx context.Context) bool {
	for !q.closed && len(q.running) >= q.workers {
		q.freed.Wait()
	}
	// The queue is closed soon after the end of ctx, but not at the same instant.
	return !q.closed && ctx.Err() == nil
}

// begin takes a worker for key. It waits for one again, as there may be fewer
// now than when key was asked for. Until then key waits, as the status has it.
func (q *Queue[K]) begin(ctx context.Context, key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	begun := q.awaitWorkerLocked(ctx)
	q.lanes.begun()
	if !begun {
		q.undone[key] = struct{}{}
		q.queue.Done(key)
		return false
	}
	delete(q.undone, key)
	q.running[key] = q.group.options.Clock.Now()
	return true
}

// end frees the worker of key. A key that was added meanwhile waits again
// before it ceases to run, so that no status misses it.
func (q *Queue[K]) end(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue.Done(key)
	delete(q.running, key)
	q.freed.Signal()
}

func (q *Queue[K]) name() string { return q.options.Name }

func (q *Queue[K]) resize(workers int) {
	if q.options.FixedWorkers > 0 {
		workers = q.options.FixedWorkers
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = workers
	q.freed.Signal()
}

// close lets no further key be taken and returns when no worker will.
func (q *Queue[K]) close() {
	q.mu.Lock()
	q.closed = true
	q.freed.Broadcast()
	q.mu.Unlock()
	q.queue.ShutDown()
	if q.putOff != nil {
		q.putOff.ShutDown()
	}
}

// leave tells the next group what this queue has not done. No worker runs any
// more; handlers may, and what they add from now on is told at once.
func (q *Queue[K]) leave() {
	leave := func(keys map[K]struct{}) { leaveUnfinished(q.group.options.Unfinished, q.options.Name, keys) }
	q.lanes.leave(leave)
	q.mu.Lock()
	undone := q.undone
	q.undone = nil
	q.mu.Unlock()
	leave(undone)
	if q.marks != nil {
		leave(q.marks.putOff())
	}
}

// addUndone remembers key, whose reconcile has failed or was given up.
func (q *Queue[K]) addUndone(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.undone[key] = struct{}{}
}

func (q *Queue[K]) setLastError(text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lastError, q.lastErrorAt = text, q.group.options.Clock.Now()
}
