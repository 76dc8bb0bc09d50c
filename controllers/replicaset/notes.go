package replicaset

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// notes are what the engine remembers between reconciles. Losing them costs a
// status write or a moment, never a wrong pod: an engine that starts anew looks
// at caches that hold everything written before.
type notes struct {
	// terminatingDropped is set when the API server does not know the field.
	terminatingDropped atomic.Bool

	mu sync.Mutex
	// heldSince is when a status was first held back.
	heldSince map[work.ObjectName]time.Time
	// unsureOf are the keys with a request whose outcome is not known.
	unsureOf map[work.ObjectName]struct{}
	// doomed are the objects whose namespace is being deleted.
	doomed map[work.ObjectName]types.UID
}

func newNotes() *notes {
	return &notes{
		heldSince: map[work.ObjectName]time.Time{},
		unsureOf:  map[work.ObjectName]struct{}{},
		doomed:    map[work.ObjectName]types.UID{},
	}
}

// holdBack returns how long the status of key may still be held back, 0 if it
// must be written now.
func (n *notes) holdBack(key work.ObjectName, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, held := n.heldSince[key]
	if !held {
		n.heldSince[key] = now
		return holdBack
	}
	// A clock that was set back must not hold a status for longer.
	return max(0, holdBack-now.Sub(since).Abs())
}

// reported notes that nothing of key is held back.
func (n *notes) reported(key work.ObjectName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.heldSince, key)
}

// unsure notes that a request of key may have done something, or not.
func (n *notes) unsure(key work.ObjectName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsureOf[key] = struct{}{}
}

func (n *notes) isUnsure(key work.ObjectName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, unsure := n.unsureOf[key]
	return unsure
}

// sure notes that the caches hold whatever the requests of key have done.
func (n *notes) sure(key work.ObjectName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.unsureOf, key)
}

// doom notes that the namespace of an object is being deleted, which nothing
// undoes: no pod can be created in it any more.
func (n *notes) doom(key work.ObjectName, uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doomed[key] = uid
}

func (n *notes) isDoomed(key work.ObjectName, uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.doomed[key] == uid
}

func (n *notes) forget(key work.ObjectName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.heldSince, key)
	delete(n.unsureOf, key)
	delete(n.doomed, key)
}
