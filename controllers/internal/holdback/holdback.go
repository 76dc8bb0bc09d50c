// Package holdback puts off writes that nobody waits for, so that one write
// tells of several changes.
package holdback

import (
	"sync"
	"time"
)

// Writes that are held back, by the key of their object. The zero value is not
// usable, see New. Losing it, as by a restart, costs a write. Its methods may be
// called concurrently.
type Writes[K comparable] struct {
	longest time.Duration

	mu    sync.Mutex
	since map[K]time.Time
}

// New returns a memory of writes that are held back for longest at most.
func New[K comparable](longest time.Duration) *Writes[K] {
	return &Writes[K]{longest: longest, since: map[K]time.Time{}}
}

// Longest is how long a write is held back at most.
func (w *Writes[K]) Longest() time.Duration { return w.longest }

// Wait returns how long the write of key may still be held back, 0 if it is to
// be made now. The first call since Written begins the time.
func (w *Writes[K]) Wait(key K, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, held := w.since[key]
	if !held {
		w.since[key] = now
		return w.longest
	}
	// A clock that was set back must not hold a write for longer.
	return max(0, w.longest-now.Sub(since).Abs())
}

// Written notes that nothing of key is held back any more.
func (w *Writes[K]) Written(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, key)
}
