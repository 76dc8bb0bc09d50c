package deployment

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// pace is the least time between two writes of counts that are still changing.
// A rollout's pods become ready in bursts; each write costs a request, and an
// event for everybody who watches.
const pace = time.Second

// pacer remembers when statuses were last written.
type pacer struct {
	mu   sync.Mutex
	last map[types.UID]time.Time
}

func newPacer() *pacer { return &pacer{last: map[types.UID]time.Time{}} }

// wait is how long the next write should be put off.
func (p *pacer) wait(uid types.UID, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.last[uid]
	if !ok {
		return 0
	}
	if since := now.Sub(last); since >= 0 && since < pace {
		return pace - since
	}
	delete(p.last, uid)
	return 0
}

func (p *pacer) wrote(uid types.UID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[uid] = now
}

func (p *pacer) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, uid)
}
