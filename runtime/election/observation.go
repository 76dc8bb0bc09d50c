package election

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// observation is what this process has seen of the Lease. As client-go does, it
// judges expiry by how long it has seen no change, by its own clock: the times
// in the Lease were written by the clocks of others.
type observation struct {
	mu sync.Mutex
	// lease as it was last seen; nil before. It is kept when the Lease is
	// deleted, since its holder does not know that yet and goes on leading.
	lease *coordinationv1.Lease
	// since when its spec is as it is.
	since time.Time
}

// see takes note of the Lease. It must not be changed afterwards.
func (o *observation) see(lease *coordinationv1.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lease == nil || !equality.Semantic.DeepEqual(o.lease.Spec, lease.Spec) {
		o.since = time.Now()
	}
	o.lease = lease
}

// heldFor returns how much longer the Lease belongs to somebody else; 0 when it
// may be taken.
func (o *observation) heldFor(identity string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lease == nil || o.lease.Spec.LeaseDurationSeconds == nil || holder(o.lease) == "" || holder(o.lease) == identity {
		return 0
	}
	duration := time.Duration(*o.lease.Spec.LeaseDurationSeconds) * time.Second
	return max(0, duration-time.Since(o.since))
}

// last returns the Lease as it was last seen, or nil.
func (o *observation) last() *coordinationv1.Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lease
}
