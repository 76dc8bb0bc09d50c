package supervisor

import (
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// desired is what one controller is wanted to do.
type desired struct {
	// version grows with every change of anything below.
	version int
	// cfg is nil before the first configuration.
	cfg *schema.ControllerManagerConfiguration
	// unavailable says why the controller cannot run in this cluster.
	unavailable string
	leading     bool
	// term grows with every change of leading, so that leadership that was
	// lost and won again is not mistaken for leadership held.
	term int
	// final is true when the supervisor ends.
	final bool
}

func (d desired) warm() bool { return d.cfg.LeaderElection.Standby != schema.StandbyCold }

func (d desired) drainTimeout() time.Duration {
	if d.cfg == nil {
		return 0
	}
	return d.cfg.Reload.DrainTimeout.Duration
}

// inbox holds the newest wish only.
type inbox struct {
	mu     sync.Mutex
	newest desired
	// changed has an entry while newest was not taken.
	changed chan struct{}
}

func newInbox() *inbox { return &inbox{changed: make(chan struct{}, 1)} }

func (i *inbox) put(d desired) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.newest = d
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

func (i *inbox) take() desired {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.newest
}
