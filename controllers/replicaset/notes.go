package replicaset

import (
	"sync"
	"sync/atomic"

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
	// doomed are the objects whose namespace is being deleted.
	doomed map[work.ObjectName]types.UID
}

func newNotes() *notes {
	return &notes{
		doomed: map[work.ObjectName]types.UID{},
	}
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
	delete(n.doomed, key)
}
