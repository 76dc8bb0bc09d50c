package podcontrol

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Outcomes remembers what the answers to requests for an owner's pods mean for
// the next ones. Losing it costs a request, never a wrong pod: a controller that
// starts anew looks at caches that hold everything written before. Its methods
// may be called concurrently.
type Outcomes struct {
	mu sync.Mutex
	// unknown are the owners with a request of which nobody knows whether it was carried out.
	unknown map[cache.ObjectName]struct{}
	// doomed are the owners whose namespace is being deleted.
	doomed map[cache.ObjectName]types.UID
}

// NewOutcomes returns an empty memory.
func NewOutcomes() *Outcomes {
	return &Outcomes{unknown: map[cache.ObjectName]struct{}{}, doomed: map[cache.ObjectName]types.UID{}}
}

// Note takes the error of a request for a pod of owner, which may be nil.
func (o *Outcomes) Note(owner cache.ObjectName, uid types.UID, err error) {
	unknown, doomed := OutcomeUnknown(err), NamespaceTerminating(err)
	if !unknown && !doomed {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if unknown {
		o.unknown[owner] = struct{}{}
	}
	if doomed {
		o.doomed[owner] = uid
	}
}

// Settle calls catchUp, which must let the caches see what the API server has
// carried out, if there was a request of owner whose outcome is not known.
func (o *Outcomes) Settle(ctx context.Context, owner cache.ObjectName, catchUp func(context.Context) error) error {
	o.mu.Lock()
	_, unknown := o.unknown[owner]
	o.mu.Unlock()
	if !unknown {
		return nil
	}
	if err := catchUp(ctx); err != nil {
		return fmt.Errorf("find out what a failed request has done: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.unknown, owner)
	return nil
}

// Doomed tells whether the API server has refused to create a pod of that very
// owner because its namespace is being deleted. Nothing undoes that.
func (o *Outcomes) Doomed(owner cache.ObjectName, uid types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	doomed, ok := o.doomed[owner]
	return ok && doomed == uid
}

// Forget an owner that is gone.
func (o *Outcomes) Forget(owner cache.ObjectName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.unknown, owner)
	delete(o.doomed, owner)
}
