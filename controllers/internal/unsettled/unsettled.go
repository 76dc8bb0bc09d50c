// Package unsettled remembers which keys have made a request that was answered
// with neither success nor refusal. The caches may lack what it did, with no
// version to tell how far they have to come; see docs/decisions/read-your-writes.md.
package unsettled

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Keys with such a request. They need not outlive the controller: a new one
// begins with caches that are up to date. Methods may be called concurrently.
type Keys struct {
	catchUp func(ctx context.Context, since time.Time) error
	clock   clock.PassiveClock

	mu   sync.Mutex
	keys map[work.ObjectName]struct{}
}

// New returns an empty set of keys. catchUp is informers.Lease.CatchUp of the
// controller's lease.
func New(catchUp func(ctx context.Context, since time.Time) error, c clock.PassiveClock) *Keys {
	return &Keys{catchUp: catchUp, clock: c, keys: map[work.ObjectName]struct{}{}}
}

// Note keeps key if err, of a request of its reconcile, leaves open whether the
// request was carried out.
func (k *Keys) Note(key work.ObjectName, err error) {
	if !podcontrol.OutcomeUnknown(err) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key] = struct{}{}
}

// Settle lets the caches catch up with the API server if key was noted. Call it
// at the beginning of a reconcile.
func (k *Keys) Settle(ctx context.Context, key work.ObjectName) error {
	k.mu.Lock()
	_, noted := k.keys[key]
	k.mu.Unlock()
	if !noted {
		return nil
	}
	if err := k.catchUp(ctx, k.clock.Now()); err != nil {
		return fmt.Errorf("find out what a failed request has done: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, key)
	return nil
}
