package statefulset

import (
	"sync"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// unsure are the keys with a request whose outcome is not known: the caches may
// lack what it did, without anything to tell how far they have to come.
type unsure struct {
	mu   sync.Mutex
	keys map[work.ObjectName]struct{}
}

func newUnsure() *unsure { return &unsure{keys: map[work.ObjectName]struct{}{}} }

// note keeps key if err leaves open whether the request was carried out.
func (u *unsure) note(key work.ObjectName, err error) {
	if !podcontrol.OutcomeUnknown(err) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keys[key] = struct{}{}
}

func (u *unsure) has(key work.ObjectName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, has := u.keys[key]
	return has
}

func (u *unsure) forget(key work.ObjectName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.keys, key)
}
