// Package sweep deletes those objects of a cache that are due, in a pass over
// all of them, and makes the next pass after an interval.
package sweep

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Options of a sweep, all of which are required.
type Options[T metav1.Object] struct {
	// Queue is the name of the queue, whose only key is a pass over everything.
	Queue string
	// Objects are those of the cache. Others than of type T are left alone.
	Objects cache.Store
	// Due says why an object is to be deleted at now, or nothing.
	Due func(object T, now time.Time) string
	// Delete deletes the object that was judged, and no other one of its name.
	Delete func(ctx context.Context, object T) error
	// Interval between two passes.
	Interval time.Duration
}

// Sweep is one that runs as long as its controller.
type Sweep[T metav1.Object] struct {
	o        Options[T]
	logger   *slog.Logger
	clock    clock.PassiveClock
	interval atomic.Int64
	queue    *work.Queue[string]
}

const everything = "everything"

// New makes a sweep whose first pass begins when the caches have synced.
func New[T metav1.Object](env controller.Env, o Options[T]) *Sweep[T] {
	s := &Sweep[T]{o: o, logger: env.Logger, clock: env.Clock}
	s.interval.Store(int64(o.Interval))
	s.queue = work.NewQueue(env.Work, work.Options[string]{Name: o.Queue, Reconcile: s.pass})
	s.queue.AddInitial(everything)
	return s
}

// Changed makes a pass at once, since Due may judge otherwise now, and has a
// new interval from then on.
func (s *Sweep[T]) Changed(interval time.Duration) {
	s.interval.Store(int64(interval))
	s.queue.Add(everything)
}

// pass deletes what is due. An object that cannot be deleted does not keep the others.
func (s *Sweep[T]) pass(ctx context.Context, _ string) (work.Result, error) {
	var first error
	failed := 0
	now := s.clock.Now()
	for _, item := range s.o.Objects.List() {
		if err := ctx.Err(); err != nil {
			return work.Result{}, err
		}
		object, ok := item.(T)
		if !ok || object.GetDeletionTimestamp() != nil {
			continue
		}
		why := s.o.Due(object, now)
		if why == "" {
			continue
		}
		name := cache.MetaObjectToName(object).String()
		switch err := s.o.Delete(ctx, object); {
		case err == nil:
			s.logger.Info("Deleted", "object", name, "uid", object.GetUID(), "reason", why)
		case notfound.ByAPIServer(err), apierrors.IsConflict(err):
			// It is gone, or is not any more what was judged: the next pass sees it.
		default:
			if failed++; first == nil {
				first = fmt.Errorf("delete %s: %w", name, err)
			}
		}
	}
	result := work.Result{RequeueAfter: time.Duration(s.interval.Load())}
	if failed > 1 {
		return result, fmt.Errorf("%d objects could not be deleted; the first: %w", failed, first)
	}
	return result, first
}
