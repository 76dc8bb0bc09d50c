// Package holdback puts off status writes that nobody waits for, so that one
// write tells of several changes.
package holdback

import (
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Longest is the longest that a status is held back.
const Longest = 500 * time.Millisecond

// Book remembers since when statuses have been held back. Losing it costs a
// write at most. Its methods may be called concurrently.
type Book struct {
	mu    sync.Mutex
	since map[work.ObjectName]time.Time
}

// NewBook returns an empty book.
func NewBook() *Book { return &Book{since: map[work.ObjectName]time.Time{}} }

// Wait returns how long the status of key may still be held back, 0 if it must
// be written now.
func (b *Book) Wait(key work.ObjectName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, held := b.since[key]
	if !held {
		b.since[key] = now
		return Longest
	}
	// A clock that was set back must not hold a status for longer.
	return max(0, Longest-now.Sub(since).Abs())
}

// Written notes that nothing of key is held back.
func (b *Book) Written(key work.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, key)
}

// Turned tells whether a count that should grow to goal has arrived there, or
// has fallen. Somebody may wait for that; other steps may be held back.
func Turned(before, after, goal int32) bool {
	return after < before || after > before && after >= goal
}
