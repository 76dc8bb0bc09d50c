// Package work runs a controller's reconciles: a queue of keys, workers whose
// number can change while they run, retries, and the rule that a key is not
// reconciled before the caches have seen what its last reconcile wrote.
package work

import (
	"context"
	"time"
)

// Result of a reconcile.
type Result struct {
	// RequeueAfter adds the key again after this time; 0 does not. After an
	// error too, where the back-off is longer, but then not within 3 seconds.
	RequeueAfter time.Duration
}

// Reconciler brings the cluster to what the object of key asks for. An error
// adds the key again with back-off. It must return soon after ctx ends.
type Reconciler[K comparable] func(ctx context.Context, key K) (Result, error)

// Status of all queues of one controller.
type Status struct {
	// Wanted, Running and Busy workers, summed over the queues.
	Wanted, Running, Busy int
	// Depth is the number of keys that wait for a worker.
	Depth int
	// Oldest is how long the key that has waited longest has waited.
	Oldest time.Duration
	// Longest is how long the reconcile that has run longest has run, and
	// LongestKey its key; 0 and empty when none runs.
	Longest    time.Duration
	LongestKey string
	// LastError of a reconcile, with its key, and when it was. Empty and zero
	// if none failed since the start.
	LastError   string
	LastErrorAt time.Time
}

// QueueStatus is the status of one queue.
type QueueStatus struct {
	Name string
	Status
	// Initial of the keys counted in Depth are of initial lists and yield to the others.
	Initial int
}
