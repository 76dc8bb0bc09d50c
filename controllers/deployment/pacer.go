package deployment

import (
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// pace is the least time between two writes of counts that are still changing.
// A rollout's pods become ready in bursts; each write costs a request, and an
// event for everybody who watches.
const pace = time.Second

// pacer remembers when statuses were last written.
type pacer struct {
	mu   sync.Mutex
	last map[work.ObjectName]time.Time
}

func newPacer() *pacer { return &pacer{last: map[work.ObjectName]time.Time{}} }

// wait is how long the next write should be put off.
func (p *pacer) wait(key work.ObjectName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.last[key]
	if !ok {
		return 0
	}
	if since := now.Sub(last); since >= 0 && since < pace {
		return pace - since
	}
	delete(p.last, key)
	return 0
}

func (p *pacer) wrote(key work.ObjectName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[key] = now
}

func (p *pacer) forget(key work.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}
