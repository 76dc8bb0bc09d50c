package serviceaccounttoken

import (
	"maps"
	"slices"
	"sync"
)

// known are the Secrets that there were when last heard of. It outlives the lives
// of the controller: no event, and no list, tells of a Secret that goes between
// two of them, and whose account must not refer to it any more.
type known struct {
	mu   sync.Mutex
	keys map[secretKey]struct{}
}

func newKnown() *known { return &known{keys: map[secretKey]struct{}{}} }

func (k *known) add(key secretKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key] = struct{}{}
}

func (k *known) remove(key secretKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, key)
}

func (k *known) all() []secretKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.keys))
}
