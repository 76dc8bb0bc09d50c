package job

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// seen is what the metrics have counted and what is still there. It outlives the
// lives of the controller, as the metrics do: each life is told anew of all
// objects. Of one that goes between two lives nobody tells, and its UID stays.
type seen struct {
	// external Jobs, which another controller reconciles.
	external *uidSet
	// terminated pods that hold the finalizer.
	terminated *uidSet
}

func newSeen() *seen { return &seen{external: newUIDSet(), terminated: newUIDSet()} }

// uidSet may be used concurrently: lives of the controller may overlap.
type uidSet struct {
	mu   sync.Mutex
	uids map[types.UID]struct{}
}

func newUIDSet() *uidSet { return &uidSet{uids: map[types.UID]struct{}{}} }

// set makes uid one of the set, or none of it, and tells whether that is new.
func (s *uidSet) set(uid types.UID, within bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, was := s.uids[uid]; was == within {
		return false
	}
	if within {
		s.uids[uid] = struct{}{}
	} else {
		delete(s.uids, uid)
	}
	return true
}
