package work

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// Retries of all keys of a queue together, as with client-go's
// DefaultTypedControllerRateLimiter.
const (
	retriesPerSecond = 10
	retryBurst       = 100
)

// NewLimiter makes a failing key wait for first, then twice as long each time, up
// to last. It differs from the limiter that a queue has by default in these
// two: all keys of the queue together are tried again 10 times a second, after a
// burst of 100.
func NewLimiter[K comparable](first, last time.Duration) workqueue.TypedRateLimiter[K] {
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, last),
		&workqueue.TypedBucketRateLimiter[K]{Limiter: rate.NewLimiter(retriesPerSecond, retryBurst)},
	)
}
