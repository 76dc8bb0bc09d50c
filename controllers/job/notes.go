package job

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// notes are what the controller remembers of Jobs between reconciles. None is
// needed for pods to be counted rightly: a controller that starts anew finds
// all of that in the API.
type notes struct {
	mu       sync.Mutex
	backOffs map[work.ObjectName]backOff
	// wroteAt is when the status was last written.
	wroteAt map[work.ObjectName]time.Time
}

func newNotes() *notes {
	return &notes{
		backOffs: map[work.ObjectName]backOff{},
		wroteAt:  map[work.ObjectName]time.Time{},
	}
}

// backOff returns the record of the Job with that UID, and false if there is none.
func (n *notes) backOff(key work.ObjectName, uid types.UID) (backOff, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	record, ok := n.backOffs[key]
	return record, ok && record.uid == uid
}

func (n *notes) setBackOff(key work.ObjectName, record backOff) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.backOffs[key] = record
}

func (n *notes) wrote(key work.ObjectName, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wroteAt[key] = now
}

// pause is how long the next status may be put off, 0 if it is long since the last.
func (n *notes) pause(key work.ObjectName, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.wroteAt[key]
	if !ok {
		return 0
	}
	// A clock that was set back must not put it off for longer.
	return max(0, pace-now.Sub(at).Abs())
}

func (n *notes) forget(key work.ObjectName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.backOffs, key)
	delete(n.wroteAt, key)
}
