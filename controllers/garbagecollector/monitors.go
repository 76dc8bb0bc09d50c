package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

const (
	// syncTimeout is how long a monitor that cannot list its resource keeps
	// owners waiting whose dependents must all be known.
	syncTimeout = 30 * time.Second
	// openTimeout is how long anything waits for a monitor. What is deleted is
	// decided without it; but an owner that it has not shown yet costs a read.
	openTimeout = 10 * time.Second
	// syncCheck is how often a monitor that has not synced is looked at.
	syncCheck = time.Second
)

// monitor shows one resource to the graph.
type monitor struct {
	resource   apischema.GroupVersionResource
	apiVersion string
	kind       string
	informer   *informers.Informer
	started    time.Time
	// replaces is the version that was monitored before; empty if none was.
	replaces apischema.GroupVersionResource

	// The rest is guarded by the monitors' mutex.

	// ended monitors belong to no resource any more.
	ended bool
	// awaited by a goroutine of follow.
	awaited bool
	synced  bool
	// failing monitors cannot list or watch. Overdue ones have not synced in time because of that.
	failing, overdue bool
}

// monitors are one for each resource whose objects can be garbage.
type monitors struct {
	c *collector
	// awaits are goroutines of follow.
	awaits sync.WaitGroup

	mu         sync.Mutex
	ignored    map[apischema.GroupResource]bool
	byResource map[apischema.GroupResource]*monitor
	// changed has an element when ignored has changed.
	changed chan struct{}
}

func newMonitors(c *collector, ignored map[apischema.GroupResource]bool) *monitors {
	return &monitors{
		c:          c,
		ignored:    ignored,
		byResource: map[apischema.GroupResource]*monitor{},
		changed:    make(chan struct{}, 1),
	}
}

// ignore other resources from now on.
func (m *monitors) ignore(ignored map[apischema.GroupResource]bool) {
	m.mu.Lock()
	m.ignored = ignored
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// wanted resources with their preferred versions.
func (m *monitors) wanted(served map[apischema.GroupVersionResource]discovery.Resource) map[apischema.GroupVersionResource]discovery.Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := map[apischema.GroupVersionResource]discovery.Resource{}
	for gvr, resource := range served {
		can := func(verb string) bool { return slices.Contains(resource.Verbs, verb) }
		if resource.Preferred && can("delete") && can("list") && can("watch") && !m.ignored[gvr.GroupResource()] {
			wanted[gvr] = resource
		}
	}
	return wanted
}

// follow what is served until ctx ends.
func (m *monitors) follow(ctx context.Context) error {
	awaiting, cancel := context.WithCancel(ctx)
	defer m.awaits.Wait()
	defer cancel()
	for {
		served, changed := m.c.discovery.Resources()
		if err := m.update(served); err != nil {
			m.c.syncErrors.Inc()
			return err
		}
		m.await(awaiting)
		m.evaluate()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-m.changed:
		}
	}
}

// update the monitors to what is served. Discovery keeps what it has known of
// groups that it cannot ask, so that nothing ends because a server is down.
func (m *monitors) update(served map[apischema.GroupVersionResource]discovery.Resource) error {
	wanted := m.wanted(served)
	if len(wanted) == 0 {
		m.c.logger.Warn("Nothing that can be deleted is served, keeping the monitors as they are")
		m.c.syncErrors.Inc()
		return nil
	}
	m.c.apply(m.c.kinds.set(served), false)
	replaced := m.end(wanted)
	for gvr, resource := range wanted {
		if err := m.start(gvr, resource, replaced[gvr.GroupResource()]); err != nil {
			return err
		}
	}
	// What is left has no successor.
	for _, old := range replaced {
		if _, ok := m.monitor(old.GroupResource()); !ok {
			m.c.apply(m.c.graph.drop(old, func(identity) bool { return false }), false)
		}
	}
	return nil
}

// end the monitors of what is not wanted any more, or in another version. A
// resource has never two monitors, whose events would have no order.
func (m *monitors) end(wanted map[apischema.GroupVersionResource]discovery.Resource) map[apischema.GroupResource]apischema.GroupVersionResource {
	ended := map[apischema.GroupResource]apischema.GroupVersionResource{}
	var release []*informers.Informer
	m.mu.Lock()
	for name, monitor := range m.byResource {
		if resource, ok := wanted[monitor.resource]; ok && resource.Kind == monitor.kind {
			continue
		}
		monitor.ended = true
		delete(m.byResource, name)
		release = append(release, monitor.informer)
		ended[name] = monitor.resource
	}
	m.mu.Unlock()
	for _, informer := range release { // it waits for handlers, which may ask for a monitor
		informer.Release()
	}
	return ended
}

func (m *monitors) start(gvr apischema.GroupVersionResource, resource discovery.Resource, replaces apischema.GroupVersionResource) error {
	if _, ok := m.monitor(gvr.GroupResource()); ok {
		return nil
	}
	informer, err := m.c.informers.Monitor(gvr)
	if err != nil {
		return fmt.Errorf("monitor %s: %w", gvr, err)
	}
	started := &monitor{
		resource:   gvr,
		apiVersion: gvr.GroupVersion().String(),
		kind:       resource.Kind,
		informer:   informer,
		started:    m.c.clock.Now(),
		replaces:   replaces,
	}
	// It has to be found by its first event.
	m.mu.Lock()
	m.byResource[gvr.GroupResource()] = started
	m.mu.Unlock()
	m.evaluate()
	if err := informer.AddEventHandler(handler{m.c, started}); err != nil {
		return fmt.Errorf("monitor %s: %w", gvr, err)
	}
	return nil
}

func (m *monitors) monitor(resource apischema.GroupResource) (*monitor, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.byResource[resource]
	return found, ok
}

// await the sync of each monitor that is new.
func (m *monitors) await(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, monitor := range m.byResource {
		if !monitor.awaited {
			monitor.awaited = true
			m.awaits.Go(func() { m.awaitSync(ctx, monitor) })
		}
	}
}

func (m *monitors) awaitSync(ctx context.Context, awaited *monitor) {
	reported := awaited.started
	for {
		attempt, cancel := context.WithTimeout(ctx, syncCheck)
		err := awaited.informer.WaitForSync(attempt)
		cancel()
		now := m.c.clock.Now()
		m.mu.Lock()
		awaited.synced = err == nil
		awaited.failing = awaited.informer.Err() != nil
		late := err != nil && now.Sub(reported) >= syncTimeout
		awaited.overdue = awaited.failing && now.Sub(awaited.started) >= syncTimeout
		ended := awaited.ended
		m.mu.Unlock()
		if ctx.Err() != nil || ended {
			return
		}
		if late {
			reported = now
			m.c.syncErrors.Inc()
			m.c.logger.Warn("Monitor has not synced", "resource", awaited.resource.String(), "err", errors.Join(err, awaited.informer.Err()))
		}
		if err == nil && awaited.replaces.Resource != "" {
			// What the former version has shown and the present one does not is gone.
			m.c.apply(m.c.graph.drop(awaited.replaces, func(i identity) bool { return awaited.holds(i) }), false)
		}
		m.evaluate()
		if err == nil {
			return
		}
	}
}

// evaluate whether the gate may be opened, and whether the graph is complete.
func (m *monitors) evaluate() {
	open, complete := true, true
	m.mu.Lock()
	for _, monitor := range m.byResource {
		open = open && (monitor.synced || monitor.failing || m.c.clock.Since(monitor.started) >= openTimeout)
		complete = complete && (monitor.synced || monitor.overdue)
	}
	open, complete = open && len(m.byResource) > 0, complete && len(m.byResource) > 0
	released := m.c.gate.set(open, complete)
	m.mu.Unlock()
	for _, changes := range released {
		m.c.enqueue(changes, true)
	}
}

// object as its monitor shows it; nil when it does not.
func (m *monitors) object(resource apischema.GroupVersionResource, i identity) metav1.Object {
	monitor, ok := m.monitor(resource.GroupResource())
	if !ok || monitor.resource != resource {
		return nil
	}
	return monitor.object(i)
}

func (m *monitor) holds(i identity) bool { return m.object(i) != nil }

func (m *monitor) object(i identity) metav1.Object {
	stored, exists, err := m.informer.Indexer().GetByKey(cache.NewObjectName(i.namespace, i.name).String())
	if err != nil || !exists {
		return nil
	}
	object, err := meta.Accessor(stored)
	if err != nil || object.GetUID() != i.uid {
		return nil
	}
	return object
}
