package work

import "sync"

// Unfinished remembers which keys of live events the last group of a controller
// left undone, so that the next one does not put them behind everything that
// its initial lists bring. It outlives groups; the zero value is empty.
type Unfinished struct {
	mu sync.Mutex
	// byQueue has sets of keys, each a map[K]struct{} of the queue's own K.
	byQueue map[string]any
}

// leaveUnfinished replaces what is remembered of a queue.
func leaveUnfinished[K comparable](u *Unfinished, queue string, keys map[K]struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(keys) == 0 {
		delete(u.byQueue, queue)
		return
	}
	if u.byQueue == nil {
		u.byQueue = map[string]any{}
	}
	u.byQueue[queue] = keys
}

// takeUnfinished tells whether key was left undone, and forgets it.
func takeUnfinished[K comparable](u *Unfinished, queue string, key K) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	keys, ok := u.byQueue[queue].(map[K]struct{})
	if !ok {
		return false
	}
	_, found := keys[key]
	delete(keys, key)
	if len(keys) == 0 {
		delete(u.byQueue, queue)
	}
	return found
}
