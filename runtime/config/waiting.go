package config

import (
	"slices"
	"sync"
)

// waiting holds the updates that nobody has taken yet, oldest first: at most
// the newest snapshot and the newest rejection, because neither may be lost
// behind the other.
type waiting struct {
	// changed has a message when there is something new.
	changed chan struct{}

	mu      sync.Mutex
	updates []Update
}

func newWaiting() *waiting { return &waiting{changed: make(chan struct{}, 1)} }

func (w *waiting) add(u Update) {
	w.mu.Lock()
	w.updates = slices.DeleteFunc(w.updates, func(older Update) bool {
		return (older.Snapshot != nil) == (u.Snapshot != nil)
	})
	w.updates = append(w.updates, u)
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *waiting) first() (Update, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.updates) == 0 {
		return Update{}, false
	}
	return w.updates[0], true
}

func (w *waiting) remove(u Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.updates = slices.DeleteFunc(w.updates, func(waits Update) bool { return waits == u })
}
