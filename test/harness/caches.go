package harness

import (
	"context"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// CatchUp returns when the caches of the controller hold what the API server
// holds now, so that what the controller does not do from now on is not left
// out for want of knowledge. Event handlers may be a moment later. It fails
// the test when the controller does not run.
func (i *Instance) CatchUp() {
	i.e.t.Helper()
	i.mu.Lock()
	lease := i.lease
	i.mu.Unlock()
	if lease == nil {
		i.e.t.Fatalf("%s has not begun to reconcile", i.descriptor.Name())
	}
	ctx, cancel := context.WithTimeout(i.e.t.Context(), readyWithin)
	defer cancel()
	if err := lease.CatchUp(ctx, time.Now()); err != nil {
		i.e.t.Fatalf("the caches of %s do not catch up: %v", i.descriptor.Name(), err)
	}
}

// keepLease of the life that is about to reconcile. As in the daemon, it begins
// with what the requests that an earlier life was cut off from may have written.
func (i *Instance) keepLease(ctx context.Context, lease *informers.Lease) error {
	i.mu.Lock()
	i.lease = lease
	aborted := i.aborted
	i.mu.Unlock()
	if aborted.IsZero() {
		return nil
	}
	if err := lease.CatchUp(ctx, aborted); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.aborted = time.Time{}
	return nil
}
