package runtime

import (
	"slices"
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// othersTimeout is how long a controller that monitors what is served waits for
// the others to be made. They are at once, unless controllers.startInterval keeps
// them from it. Who does not wait has its own copy of some metadata.
const othersTimeout = 5 * time.Second

// awaitOthers returns when every other controller that may run with cfg has been
// made at least once.
func (m *Manager) awaitOthers(cfg *schema.ControllerManagerConfiguration) {
	timeout := m.clock.NewTimer(othersTimeout)
	defer timeout.Stop()
	for {
		made, more := m.made.all()
		missing := func(d controller.Descriptor) bool {
			return !d.Monitors && !made[d.Name()] && supervisor.MayRun(d, cfg, m.unavailable)
		}
		if !slices.ContainsFunc(m.o.Descriptors, missing) {
			return
		}
		select {
		case <-more:
		case <-timeout.C():
			return
		}
	}
}

// madeLog remembers which controllers have been made.
type madeLog struct {
	mu sync.Mutex
	// made is replaced, never changed.
	made map[string]bool
	// more is closed and replaced when made is.
	more chan struct{}
}

func newMadeLog() *madeLog { return &madeLog{more: make(chan struct{})} }

func (l *madeLog) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made[name] {
		return
	}
	made := map[string]bool{name: true}
	for earlier := range l.made {
		made[earlier] = true
	}
	l.made = made
	close(l.more)
	l.more = make(chan struct{})
}

// all that have been made, and a channel that is closed when there are more.
func (l *madeLog) all() (map[string]bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made, l.more
}
