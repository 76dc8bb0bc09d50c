package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// levelDetail is Kubernetes verbosity 2.
const levelDetail = slog.Level(-2)

// failedRequeueMin is the least RequeueAfter of a reconcile that has failed, so
// that its back-off is not defeated: the key is reconciled 20 times a minute at most.
const failedRequeueMin = 3 * time.Second

var errGoexit = errors.New("runtime.Goexit was called")

// handle reconciles key once, or puts it off, and adds it again when it is needed.
// Whatever panics in it fails the group instead of the process.
func (q *Queue[K]) handle(ctx context.Context, key K) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil {
			value = errGoexit
		}
		err := &PanicError{Queue: q.options.Name, Key: fmt.Sprint(key), Value: value, Stack: debug.Stack()}
		q.setLastError(err.Error())
		q.group.fail(err)
	}()
	if q.mayReconcile(key) {
		result, err := q.reconcile(ctx, key)
		q.settle(ctx, key, result, err)
	}
	returned = true
}

// mayReconcile tells whether the caches have seen what the last reconcile of
// key wrote. Otherwise key is added again later.
func (q *Queue[K]) mayReconcile(key K) bool {
	if q.marks == nil {
		return true
	}
	v := q.marks.check(key)
	if len(v.unreached) == 0 {
		return true
	}
	if v.putOff <= 0 {
		q.logger.Warn("Cache has not seen the last writes of the key, reconciling it all the same",
			"key", fmt.Sprint(key), "waited", v.waited, "versions", versionsAttr(v.unreached))
		return true
	}
	if v.log {
		q.logger.Info("Still waiting for the cache to see the last writes of the key",
			"key", fmt.Sprint(key), "waited", v.waited, "versions", versionsAttr(v.unreached))
	}
	q.putOff.AddAfter(key, v.putOff)
	if q.options.OnStale != nil {
		for resource := range v.unreached {
			q.options.OnStale(resource)
		}
	}
	return false
}

// versionsAttr is resourceVersion by resource, as the log shows it.
func versionsAttr(versions map[schema.GroupResource]string) map[string]string {
	byName := make(map[string]string, len(versions))
	for resource, version := range versions {
		byName[resource.String()] = version
	}
	return byName
}

// reconcile calls the controller. What it wrote counts even when it failed afterwards.
func (q *Queue[K]) reconcile(ctx context.Context, key K) (Result, error) {
	if q.marks == nil {
		return q.options.Reconcile(ctx, key)
	}
	ctx, written := q.group.options.Marks(ctx)
	result, err := q.options.Reconcile(ctx, key)
	q.marks.record(key, written())
	return result, err
}

// settle adds key again as the outcome asks for.
func (q *Queue[K]) settle(ctx context.Context, key K, result Result, err error) {
	if err == nil {
		q.limiter.Forget(key)
		if result.RequeueAfter > 0 {
			q.queue.AddAfter(key, result.RequeueAfter)
		}
		return
	}
	q.addUndone(key)
	if ctx.Err() != nil {
		// The reconcile was given up; the next one to lead, or to start, does it again.
		q.logger.Log(ctx, levelDetail, "Reconcile was cancelled", "key", fmt.Sprint(key), "err", err)
		return
	}
	if result.RequeueAfter > 0 {
		// What becomes due does so whatever has failed. Of this and the back-off the earlier counts.
		q.queue.AddAfter(key, max(result.RequeueAfter, failedRequeueMin))
	}
	if refused := q.group.options.Refused; refused != nil && refused(err) {
		q.logger.Log(ctx, levelDetail, "Reconcile may not write at present", "key", fmt.Sprint(key), "err", err)
		q.AddRateLimited(key)
		return
	}
	level := slog.LevelError
	if isOvertaken(err) {
		level = levelDetail // somebody else was faster, as is to be expected
	}
	failures := q.limiter.NumRequeues(key) + 1
	q.setLastError(fmt.Sprintf("%v: %v", key, err))
	if q.options.MaxRetries > 0 && failures > q.options.MaxRetries {
		q.logger.Log(ctx, level, "Reconcile failed, retrying slowly", "key", fmt.Sprint(key), "err", err,
			"after", q.options.SlowRetry)
		q.queue.AddAfter(key, q.options.SlowRetry)
		return
	}
	q.logger.Log(ctx, level, "Reconcile failed", "key", fmt.Sprint(key), "err", err, "failures", failures)
	q.AddRateLimited(key)
}
