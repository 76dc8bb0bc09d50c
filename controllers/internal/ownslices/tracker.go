package ownslices

import (
	"math"
	"sync"

	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// deleted stands for the generation of a slice that this controller has deleted.
const deleted = math.MaxInt64

// Tracker remembers what a controller has written, so that the events of its
// own writes lead to no further reconcile, and slices that it has deleted are
// not taken for present. Versions would not do: a DELETE is answered without one.
//
// It begins empty with each life of a controller. Its methods may be called concurrently.
type Tracker struct {
	mu       sync.Mutex
	services map[cache.ObjectName]*written
}

// written are the slices of one Service.
type written struct {
	// generations that the API server answered with, by slice.
	generations map[types.UID]int64
	// reconciling is true between Begin and End. What was seen in that time may
	// be of a write whose answer is still under way.
	reconciling bool
	seen        map[types.UID]int64
}

// NewTracker makes an empty one.
func NewTracker() *Tracker { return &Tracker{services: map[cache.ObjectName]*written{}} }

func (t *Tracker) of(service cache.ObjectName) *written {
	w := t.services[service]
	if w == nil {
		w = &written{generations: map[types.UID]int64{}, seen: map[types.UID]int64{}}
		t.services[service] = w
	}
	return w
}

// Begin is called before the slices of service are looked at and written.
func (t *Tracker) Begin(service cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(service).reconciling = true
}

// End is called after Begin, and tells whether somebody else has changed a
// slice in between, so that it has to be looked at again.
func (t *Tracker) End(service cache.ObjectName) (changedByOthers bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.of(service)
	w.reconciling = false
	for uid, generation := range w.seen {
		if w.foreign(uid, generation) {
			changedByOthers = true
		}
	}
	clear(w.seen)
	if len(w.generations) == 0 {
		delete(t.services, service)
	}
	return changedByOthers
}

func (w *written) foreign(uid types.UID, generation int64) bool {
	own, ok := w.generations[uid]
	return !ok || generation > own
}

// Wrote keeps what the API server has answered a create or update with.
func (t *Tracker) Wrote(service cache.ObjectName, slice *discovery.EndpointSlice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(service).generations[slice.UID] = slice.Generation
}

// Deletes is called before a slice is deleted.
func (t *Tracker) Deletes(service cache.ObjectName, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(service).generations[uid] = deleted
}

// Lost forgets a slice: its deletion failed, or it no longer belongs to service.
func (t *Tracker) Lost(service cache.ObjectName, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.services[service]; w != nil {
		delete(w.generations, uid)
	}
}

// Deleted tells whether this controller has deleted the slice, which the cache
// may not show yet.
func (t *Tracker) Deleted(service cache.ObjectName, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.services[service]
	return w != nil && w.generations[uid] == deleted
}

// Changed tells whether the event of a new or changed slice is of somebody
// else's write. During a reconcile of its Service that is not known yet: it is
// false then, and End knows.
func (t *Tracker) Changed(service cache.ObjectName, slice *discovery.EndpointSlice) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.services[service]
	if w == nil {
		return true
	}
	if !w.foreign(slice.UID, slice.Generation) {
		return false
	}
	if w.reconciling {
		w.seen[slice.UID] = max(w.seen[slice.UID], slice.Generation)
		return false
	}
	return true
}

// Gone tells whether a slice that is gone was deleted by somebody else, and forgets it.
func (t *Tracker) Gone(service cache.ObjectName, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.services[service]
	if w == nil {
		return true
	}
	own := w.generations[uid] == deleted
	delete(w.generations, uid)
	delete(w.seen, uid)
	if len(w.generations) == 0 && !w.reconciling {
		delete(t.services, service)
	}
	return !own
}

// Forget a Service that is gone.
func (t *Tracker) Forget(service cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.services[service]; w != nil && w.reconciling {
		clear(w.generations)
		return
	}
	delete(t.services, service)
}
