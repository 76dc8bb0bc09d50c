package work

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Group owns the queues of one life of a controller.
type Group struct{}

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
	// OnStale is called when a reconcile is put off because the cache of the
	// resource has not seen the key's own last write yet. May be nil.
	OnStale func(resource schema.GroupResource)
}

// Queue hands keys to reconciles. A key is never reconciled twice at once.
type Queue[K comparable] struct{}

// NewQueue makes a queue that the engine starts, resizes, drains and stops with its group.
func NewQueue[K comparable](g *Group, o Options[K]) *Queue[K] { return nil }

// Add adds key now.
func (q *Queue[K]) Add(key K) {}

// AddInitial adds key now, behind keys of live events; for initial lists.
func (q *Queue[K]) AddInitial(key K) {}

// AddAfter adds key after d; of several waits for a key the earliest counts.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {}

// AddRateLimited adds key after its back-off, as a failed reconcile does.
func (q *Queue[K]) AddRateLimited(key K) {}

// AddEvent adds key, behind live events when isInInitialList is true.
func (q *Queue[K]) AddEvent(key K, isInInitialList bool) {}

// ObjectName is the usual key.
type ObjectName = cache.ObjectName
