package informers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// Informer is a leased informer. Its methods may be called concurrently.
type Informer struct {
	lease  *Lease
	shared *shared
	// silent handlers do nothing: the informer is being released, or the lease failed.
	silent atomic.Bool
	// monitor is never waited for by its lease while it is of no use.
	monitor atomic.Bool

	release sync.Once
	// ended is closed when Release begins.
	ended chan struct{}

	mu            sync.Mutex
	released      bool
	registrations []cache.ResourceEventHandlerRegistration
}

// AddIndexers adds indexes by name; one that is there already is kept. Names
// are shared by all users of the resource, so the same name must mean the same
// index. An index outlives the lease: it must not refer to the controller.
func (i *Informer) AddIndexers(indexers cache.Indexers) error {
	guarded := make(cache.Indexers, len(indexers))
	for name, index := range indexers {
		guarded[name] = i.guard(name, index)
	}
	return i.shared.addIndexers(guarded)
}

// guard keeps an index function from ending the process: client-go panics when
// one fails, in a goroutine of the informer.
func (i *Informer) guard(name string, index cache.IndexFunc) cache.IndexFunc {
	lease, what := i.lease, fmt.Sprintf("index %s of %s", name, i.shared.key)
	return func(obj any) (values []string, err error) {
		defer lease.recoverPanic(what)
		values, err = index(obj)
		if err != nil {
			lease.fail(fmt.Errorf("%s: %w", what, err))
			return nil, nil
		}
		return values, nil
	}
}

// AddEventHandler registers handler until the informer or its lease is
// released. Events of the initial replay come with isInInitialList true. Each
// handler gets its events one after the other. Both objects of an update have
// one UID: an object that took the place of another while no watch was there
// comes as the deletion of the other, a cache.DeletedFinalStateUnknown, and as
// an addition.
func (i *Informer) AddEventHandler(handler cache.ResourceEventHandler) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.released {
		return fmt.Errorf("add event handler of %s to %s: %w", i.lease.user, i.shared.key, errLeaseReleased)
	}
	registration, err := i.shared.informer.AddEventHandler(newGuardedHandler(i, handler))
	if err != nil {
		return fmt.Errorf("add event handler of %s to %s: %w", i.lease.user, i.shared.key, err)
	}
	i.registrations = append(i.registrations, registration)
	return nil
}

// Indexer is the store. Its objects must not be changed.
func (i *Informer) Indexer() cache.Indexer { return i.shared.informer.GetIndexer() }

// HasSynced tells whether the store holds a full list and every handler that
// was added to i has had its initial replay.
func (i *Informer) HasSynced() bool {
	for _, checker := range i.checkers() {
		if !cache.IsDone(checker) {
			return false
		}
	}
	return true
}

// WaitForSync returns when HasSynced is true, or with an error when ctx ends or
// the informer is released before.
func (i *Informer) WaitForSync(ctx context.Context) error { return i.waitForSync(ctx) }

// Err is why the informer's last list or watch failed; nil when it works.
func (i *Informer) Err() error { return i.shared.source.health.lastErr() }

// unusable tells that nobody waits for the informer now.
func (i *Informer) unusable() bool {
	return i.monitor.Load() && (!i.HasSynced() || i.Err() != nil)
}

// Release gives this one informer back before its lease ends, as
// Lease.Release does for all of them.
func (i *Informer) Release() {
	i.release.Do(func() {
		i.silent.Store(true)
		i.lease.forget(i)
		i.mu.Lock()
		i.released = true
		registrations := i.registrations
		i.registrations = nil
		i.mu.Unlock()
		close(i.ended)
		for _, registration := range registrations {
			if err := cache.ShutDownEventHandler(i.shared.informer, registration); err != nil {
				// The registration is client-go's own, so it knows it.
				i.lease.pool.o.Logger.Error("event handler was not removed",
					"controller", i.lease.user, "resource", i.shared.key.String(), "error", err)
			}
		}
		i.lease.pool.release(i)
	})
}

func (i *Informer) checkers() []cache.DoneChecker {
	i.mu.Lock()
	defer i.mu.Unlock()
	checkers := []cache.DoneChecker{i.shared.informer.HasSyncedChecker()}
	for _, registration := range i.registrations {
		checkers = append(checkers, registration.HasSyncedChecker())
	}
	return checkers
}

func (i *Informer) waitForSync(ctx context.Context) error {
	for _, checker := range i.checkers() {
		select {
		case <-checker.Done():
		case <-i.ended:
			return errInformerReleased
		case <-i.shared.context.Done():
			return i.shared.waitError("wait for sync", errPoolClosed)
		case <-ctx.Done():
			return i.shared.waitError("wait for sync", context.Cause(ctx))
		}
	}
	return nil
}
