package podcontrol

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Doomed remembers the owners whose namespace is being deleted, which nothing
// undoes: no pod, nor anything else, can be created for them any more. Losing it costs a request.
// Its methods may be called concurrently.
type Doomed struct {
	mu     sync.Mutex
	owners map[cache.ObjectName]types.UID
}

// NewDoomed returns an empty memory.
func NewDoomed() *Doomed { return &Doomed{owners: map[cache.ObjectName]types.UID{}} }

// Note keeps owner if err, of a creation, says that its namespace is being
// deleted. err may be nil.
func (d *Doomed) Note(owner cache.ObjectName, uid types.UID, err error) {
	if !NamespaceTerminating(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owners[owner] = uid
}

// Has tells whether that very owner was noted, not another one of its name.
func (d *Doomed) Has(owner cache.ObjectName, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	noted, ok := d.owners[owner]
	return ok && noted == uid
}

// Forget an owner that is gone.
func (d *Doomed) Forget(owner cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.owners, owner)
}
