package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	if descriptor.Monitors {
		m.awaitOthers(cfg)
	}
	defer m.made.add(name) // if it could not be made, nobody waits for it either
	clients, marks, err := m.clients.For(name, descriptor.ServiceAccount)
	if err != nil {
		return nil, fmt.Errorf("make the clients of %s: %w", name, err)
	}
	m.clients.SetControllerLimits(name, section.Base().Client)
	aborted, memory := m.past.of(name)
	l, err := life.New(life.Options{
		Descriptor:         descriptor,
		Section:            section,
		Config:             cfg,
		Clients:            clients,
		Marks:              marks,
		Memory:             memory,
		Pool:               m.pool,
		Discovery:          m.discovery,
		Events:             m.events.Recorder(descriptor.EventComponent()),
		Metrics:            m.metrics.Controller(name),
		QueueMetrics:       m.metrics,
		DeleteQueueMetrics: m.metrics.DeleteQueue,
		CatchUp: func(ctx context.Context, lease *informers.Lease) error {
			return m.catchUp(ctx, lease, aborted)
		},
		ServerCA: m.clients.ServerCA,
		Logger:   m.logging.Logger(name),
		Clock:    m.clock,
	})
	if err != nil {
		m.panics.count(name, err)
		return nil, err
	}
	return &watchedLife{Life: l, name: name, manager: m}, nil
}

func (m *Manager) descriptor(name string) (controller.Descriptor, bool) {
	for _, d := range m.o.Descriptors {
		if d.Name() == name {
			return d, true
		}
	}
	return controller.Descriptor{}, false
}

// catchUp waits until the caches of a lease hold what an earlier leader wrote,
// and, if the controller's last life was cut short at aborted, what its requests
// without an answer may have written.
func (m *Manager) catchUp(ctx context.Context, lease *informers.Lease, aborted time.Time) error {
	if !aborted.IsZero() {
		if err := lease.CatchUp(ctx, aborted); err != nil {
			return err
		}
	}
	if marks, known := m.elector.LastMarks(); known {
		return lease.WaitForSync(ctx, marks)
	}
	m.mu.Lock()
	since := m.ledSince
	m.mu.Unlock()
	return lease.CatchUp(ctx, since)
}

// unavailable says why a controller cannot run in this cluster with cfg, or nothing.
func (m *Manager) unavailable(name string, cfg *schema.ControllerManagerConfiguration) string {
	descriptor, ok := m.descriptor(name)
	if !ok {
		return ""
	}
	if descriptor.Unavailable != nil {
		serverCA, _ := m.clients.ServerCA()
		if reason := descriptor.Unavailable(cfg.Controllers.Sections[name], serverCA); reason != "" {
			return reason
		}
	}
	if len(descriptor.Requires) == 0 {
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

// followDiscovery asks the supervisor to look again whenever the served
// resources, or the API server's CA, change.
func (m *Manager) followDiscovery(ctx context.Context) {
	for {
		changed := m.discovery.Changed()
		_, newCA := m.clients.ServerCA()
		m.supervisor.Recheck()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-newCA:
		}
	}
}

// watchedLife tells the manager how a life ended, and gives it limits of its own.
type watchedLife struct {
	*life.Life
	name    string
	manager *Manager
}

// Run implements supervisor.Life.
func (l *watchedLife) Run(ctx, workCtx context.Context, lead <-chan struct{}) error {
	err := l.Life.Run(ctx, workCtx, lead)
	l.manager.panics.count(l.name, err)
	if workCtx.Err() != nil {
		l.manager.past.aborted(l.name, l.manager.clock.Now())
	}
	return err
}

// ApplyLive implements supervisor.Life.
func (l *watchedLife) ApplyLive(section schema.Section) {
	l.manager.clients.SetControllerLimits(l.name, section.Base().Client)
	l.Life.ApplyLive(section)
}

// pastLives is what lives of controllers leave to those after them.
type pastLives struct {
	mu sync.Mutex
	// aborts are when reconciles were last cancelled.
	aborts   map[string]time.Time
	memories map[string]*controller.Memory
}

func newPastLives() *pastLives {
	return &pastLives{aborts: map[string]time.Time{}, memories: map[string]*controller.Memory{}}
}

func (p *pastLives) aborted(name string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborts[name] = at
}

// of a controller. The time is zero when nothing was cancelled.
func (p *pastLives) of(name string) (aborted time.Time, memory *controller.Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memories[name] == nil {
		p.memories[name] = &controller.Memory{}
	}
	return p.aborts[name], p.memories[name]
}

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
