package work

import (
	"maps"
	"sync"
)

// Unfinished remembers which keys the last group of a controller left undone,
// apart from those that only an initial list had brought, which the next one's
// brings again. So nothing is lost of what concerns an object that is gone, and
// the others need not wait behind the initial lists. It outlives groups; the
// zero value is empty.
type Unfinished struct {
	mu sync.Mutex
	// byQueue has sets of keys, each a map[K]struct{} of the queue's own K.
	byQueue map[string]any
}

// leaveUnfinished adds to what is remembered of a queue.
func leaveUnfinished[K comparable](u *Unfinished, queue string, keys map[K]struct{}) {
	if u == nil || len(keys) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if remembered, ok := u.byQueue[queue].(map[K]struct{}); ok {
		maps.Copy(remembered, keys)
		return
	}
	if u.byQueue == nil {
		u.byQueue = map[string]any{}
	}
	u.byQueue[queue] = keys
}

// takeUnfinished returns what is remembered of a queue, and forgets it.
func takeUnfinished[K comparable](u *Unfinished, queue string) map[K]struct{} {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	keys, ok := u.byQueue[queue].(map[K]struct{})
	if !ok {
		return nil
	}
	delete(u.byQueue, queue)
	return keys
}
