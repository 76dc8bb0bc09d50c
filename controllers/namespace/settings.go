package namespace

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// settings change while the controller runs.
type settings struct {
	// changed has an element when they have changed.
	changed chan struct{}

	mu            sync.Mutex
	period, grace time.Duration
}

func newSettings(section *schema.NamespaceController) settings {
	return settings{
		changed: make(chan struct{}, 1),
		period:  section.SyncPeriod.Duration,
		grace:   section.DeletionGracePeriod.Duration,
	}
}

func (s *settings) set(section *schema.NamespaceController) {
	period, grace := section.SyncPeriod.Duration, section.DeletionGracePeriod.Duration
	s.mu.Lock()
	same := s.period == period && s.grace == grace
	s.period, s.grace = period, grace
	s.mu.Unlock()
	if same {
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *settings) syncPeriod() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.period
}

func (s *settings) gracePeriod() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grace
}

// resync looks at every namespace that is being deleted once in a period, and
// when settings have changed, until ctx ends.
func (c *namespaceController) resync(ctx context.Context) error {
	for {
		// A nil channel is never ready.
		var due <-chan time.Time
		var timer clock.Timer
		if period := c.settings.syncPeriod(); period > 0 {
			timer = c.clock.NewTimer(period)
			due = timer.C()
		}
		ended := false
		select {
		case <-ctx.Done():
			ended = true
		case <-c.settings.changed:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		if ended {
			return nil
		}
		if err := c.addAll(); err != nil {
			return err
		}
	}
}

func (c *namespaceController) addAll() error {
	all, err := c.namespaces.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, n := range all {
		if unfinished(n) {
			c.queue.Add(n.Name)
		}
	}
	return nil
}
