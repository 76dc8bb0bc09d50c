package runtime

import (
	"context"
	"fmt"
)

// lead lets the controllers reconcile until ctx ends.
func (m *Manager) lead(ctx context.Context) {
	m.mu.Lock()
	m.ledSince = m.clock.Now()
	m.mu.Unlock()
	m.supervisor.SetLeading(true)
	<-ctx.Done()
}

// lost returns when no controller reconciles any more. One that does not end
// ends the process: it could write beside the next leader.
func (m *Manager) lost() {
	m.supervisor.SetLeading(false)
	<-m.supervisor.Settled()
	if err := m.supervisor.StuckAfterLoss(); err != nil {
		m.fail(fmt.Errorf("leadership was lost: %w", err))
	}
}
