package work

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// How long a key is put off while the caches have not seen its own last writes.
const (
	staleDelayMin = 5 * time.Millisecond
	staleDelayMax = time.Second
	// staleLogAfter of being put off, the log says what is waited for, once.
	staleLogAfter = time.Minute
	// staleGiveUp is when the key is reconciled all the same: a cache that is
	// this late has lost its watch for good, or the mark was wrong.
	staleGiveUp = 5 * time.Minute
)

// marks remembers, per key, the resourceVersions that its last reconcile
// wrote, until the caches have reached them. A key is handled by one goroutine at a time.
type marks[K comparable] struct {
	reached func(schema.GroupResource, string) bool
	clock   clock.PassiveClock

	mu    sync.Mutex
	byKey map[K]*mark
	// sweepAt is the number of keys at which marks are dropped that have been
	// reached without their key having been looked at again, as after a deletion.
	sweepAt int
}

const sweepMin = 64

type mark struct {
	// versions is not changed once it is here.
	versions map[schema.GroupResource]string
	// since when the key has been put off, until when, and for how long the last time.
	since, until time.Time
	delay        time.Duration
	logged       bool
}

func newMarks[K comparable](reached func(schema.GroupResource, string) bool, c clock.PassiveClock) *marks[K] {
	return &marks[K]{reached: reached, clock: c, byKey: map[K]*mark{}, sweepAt: sweepMin}
}

// verdict on a key that is about to be reconciled.
type verdict struct {
	// unreached versions by resource; empty when the key can be reconciled.
	unreached map[schema.GroupResource]string
	// putOff is for how long the key must wait; not positive when it has waited in vain for staleGiveUp.
	putOff time.Duration
	// waited in all.
	waited time.Duration
	// log is true once, after staleLogAfter.
	log bool
}

// check tells whether key can be reconciled, and forgets its marks if so.
func (m *marks[K]) check(key K) verdict {
	m.mu.Lock()
	known := m.byKey[key]
	m.mu.Unlock()
	if known == nil {
		return verdict{}
	}
	v := verdict{unreached: m.unreached(known.versions)}
	if len(v.unreached) == 0 {
		m.forget(key, known)
		return v
	}
	now := m.clock.Now()
	if known.since.IsZero() {
		known.since = now
	}
	v.waited = now.Sub(known.since)
	if v.waited >= staleGiveUp {
		m.forget(key, known)
		return v
	}
	// Events may bring the key back before its wait is over. They must not
	// lengthen it: the one that brings the cache up to date is among them.
	if !now.Before(known.until) {
		known.delay = min(max(2*known.delay, staleDelayMin), staleDelayMax)
		known.until = now.Add(known.delay)
	}
	v.putOff = known.until.Sub(now)
	if v.waited >= staleLogAfter && !known.logged {
		known.logged = true
		v.log = true
	}
	return v
}

// record keeps what a reconcile of key wrote as far as the caches have not seen it yet.
func (m *marks[K]) record(key K, written map[schema.GroupResource]string) {
	unreached := m.unreached(written)
	if len(unreached) == 0 {
		return
	}
	m.mu.Lock()
	m.byKey[key] = &mark{versions: unreached}
	full := len(m.byKey) >= m.sweepAt
	m.mu.Unlock()
	if full {
		m.sweep()
	}
}

// putOff returns the keys that wait for a cache.
func (m *marks[K]) putOff() map[K]struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := map[K]struct{}{}
	for key, known := range m.byKey {
		if !known.since.IsZero() {
			keys[key] = struct{}{}
		}
	}
	return keys
}

func (m *marks[K]) unreached(versions map[schema.GroupResource]string) map[schema.GroupResource]string {
	var behind map[schema.GroupResource]string
	for resource, version := range versions {
		if !m.reached(resource, version) {
			if behind == nil {
				behind = map[schema.GroupResource]string{}
			}
			behind[resource] = version
		}
	}
	return behind
}

func (m *marks[K]) forget(key K, known *mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKey[key] == known {
		delete(m.byKey, key)
	}
}

// sweep asks the caches without holding the lock, and doubles the size at
// which it is called again, so that its cost per recorded key stays constant.
func (m *marks[K]) sweep() {
	m.mu.Lock()
	all := make(map[K]*mark, len(m.byKey))
	for key, known := range m.byKey {
		all[key] = known
	}
	m.mu.Unlock()
	for key, known := range all {
		if len(m.unreached(known.versions)) == 0 {
			m.forget(key, known)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweepAt = max(2*len(m.byKey), sweepMin)
}
