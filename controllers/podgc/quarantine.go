package podgc

import (
	"maps"
	"sync"
	"time"
)

// quarantine remembers since when nodes that pods are bound to are missing.
// Losing it makes those pods live longer. Its methods may be called concurrently.
type quarantine struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// check notes which of nodes are missing at now, forgets all others, and returns
// those that have been for quarantineTime.
//
// Missing is called while the quarantine is locked: a node that comes back in
// this instant is in the store before its event ends the quarantine.
func (q *quarantine) check(nodes []string, missing func(node string) bool, now time.Time) (over []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	still := map[string]time.Time{}
	for _, node := range nodes {
		if !missing(node) {
			continue
		}
		since, known := q.since[node]
		if !known {
			since = now
		}
		still[node] = since
		if now.Sub(since) >= quarantineTime {
			over = append(over, node)
		}
	}
	q.since = still
	return over
}

// end of the quarantine of a node that is back, or whose pods were deleted.
// When it is missing again, it counts from then.
func (q *quarantine) end(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.since, node)
}

// nodes in quarantine, with the time since when they are missing.
func (q *quarantine) nodes() map[string]time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.since)
}
