package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/life"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// newLife implements supervisor.Factory.
func (m *Manager) newLife(name string, section schema.Section, cfg *schema.ControllerManagerConfiguration) (supervisor.Life, error) {
	descriptor, ok := m.descriptor(name)
	if !ok {
		return nil, fmt.Errorf("controller %s is not in this build", name)
	}
	clients, marks, err := m.clients.For(name, descriptor.ServiceAccount)
	if err != nil {
		return nil, fmt.Errorf("make the clients of %s: %w", name, err)
	}
	l, err := life.New(life.Options{
		Descriptor:         descriptor,
		Section:            section,
		Config:             cfg,
		Clients:            clients,
		Marks:              marks,
		Pool:               m.pool,
		Events:             m.events.Recorder(name),
		Metrics:            m.metrics.Controller(name),
		QueueMetrics:       m.metrics,
		DeleteQueueMetrics: m.metrics.DeleteQueue,
		CatchUp:            m.catchUp,
		Logger:             m.logging.Logger(name),
		Clock:              m.clock,
	})
	if err != nil {
		m.panics.count(name, err)
		return nil, err
	}
	return &countedLife{Life: l, name: name, panics: m.panics}, nil
}

func (m *Manager) descriptor(name string) (controller.Descriptor, bool) {
	for _, d := range m.o.Descriptors {
		if d.Name() == name {
			return d, true
		}
	}
	return controller.Descriptor{}, false
}

// catchUp waits until the caches of a lease hold what an earlier leader wrote.
func (m *Manager) catchUp(ctx context.Context, lease *informers.Lease) error {
	if marks, known := m.elector.LastMarks(); known {
		return lease.WaitForSync(ctx, marks)
	}
	m.mu.Lock()
	since := m.ledSince
	m.mu.Unlock()
	return lease.CatchUp(ctx, since)
}

// unavailable says why a controller cannot run in this cluster, or nothing.
func (m *Manager) unavailable(name string, _ *schema.ControllerManagerConfiguration) string {
	descriptor, ok := m.descriptor(name)
	if !ok || len(descriptor.Requires) == 0 {
		return ""
	}
	select {
	case <-m.discovery.Ready():
	default:
		return "the API server's resources are not known yet"
	}
	for _, gvr := range descriptor.Requires {
		if !m.discovery.Served(gvr) {
			return fmt.Sprintf("the API server does not serve %s in %s", gvr.Resource, gvr.GroupVersion())
		}
	}
	return ""
}

// followDiscovery asks the supervisor to look again whenever the served resources change.
func (m *Manager) followDiscovery(ctx context.Context) {
	for {
		changed := m.discovery.Changed()
		m.supervisor.Recheck()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// countedLife counts the panics that end a life.
type countedLife struct {
	supervisor.Life
	name   string
	panics *panicCounter
}

func (l *countedLife) Run(ctx, workCtx context.Context, lead <-chan struct{}) error {
	err := l.Life.Run(ctx, workCtx, lead)
	l.panics.count(l.name, err)
	return err
}

func (l *countedLife) Handler() http.Handler { return l.Life.Handler() }

// panicCounter counts panics by controller.
type panicCounter struct {
	mu     sync.Mutex
	panics map[string]int
}

func newPanicCounter() *panicCounter { return &panicCounter{panics: map[string]int{}} }

// count counts err if it stems from a panic.
func (c *panicCounter) count(name string, err error) {
	var reconcile *work.PanicError
	var other *life.PanicError
	if errors.As(err, &reconcile) || errors.As(err, &other) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.panics[name]++
	}
}

func (c *panicCounter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panics[name]
}
