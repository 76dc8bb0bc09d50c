// Package monitors keeps one informer for each served resource that a
// controller looks after, whatever resources there are: the set follows
// discovery, and nothing waits for a resource that cannot be listed.
package monitors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

const (
	// SyncTimeout is when a monitor that cannot list its resource is overdue.
	SyncTimeout = 30 * time.Second
	// syncCheck is how often a monitor that has not synced is looked at.
	syncCheck = time.Second
)

// Options of a Set. Informers, Discovery, Clock, Logger and Wanted are required.
type Options struct {
	Informers *informers.Lease
	Discovery *discovery.Discovery
	Clock     clock.PassiveClock
	Logger    *slog.Logger
	// Wanted tells whether a served resource is to be monitored. It is asked
	// for preferred versions only that can be listed and watched.
	Wanted func(apischema.GroupVersionResource, discovery.Resource) bool
	// Lease returns the informer of a resource. Default: Informers.Monitor.
	Lease func(apischema.GroupVersionResource) (*informers.Informer, error)
	// Handler of a new monitor, whose Informer is set; it may return nil. It is
	// called before the first event.
	Handler func(*Monitor) cache.ResourceEventHandler
	// Served is told what is served before the monitors change. May be nil.
	Served func(map[apischema.GroupVersionResource]discovery.Resource)
	// Synced is called when a monitor has synced. May be nil.
	Synced func(*Monitor)
	// Ended is called when a resource is not monitored any more, in no version. May be nil.
	Ended func(apischema.GroupVersionResource)
	// Changed is called when there is a monitor more, or the state of one may be
	// another. May be nil.
	Changed func()
	// Failed is called when it is not known what is served, and from time to time
	// while a monitor does not sync. May be nil.
	Failed func()
}

// Monitor shows one resource. Its fields do not change.
type Monitor struct {
	Resource apischema.GroupVersionResource
	Kind     string
	Informer *informers.Informer
	// Replaces is the version that was monitored before; empty if none was.
	Replaces apischema.GroupVersionResource

	started time.Time

	// The rest is guarded by the set's mutex.

	// ended monitors belong to no resource any more.
	ended bool
	// awaited by a goroutine of Follow.
	awaited         bool
	synced, failing bool
	overdue         bool
}

// State of a monitor.
type State struct {
	Resource apischema.GroupVersionResource
	// Synced: all of the resource has been shown.
	Synced bool
	// Failing monitors have not synced and cannot list or watch. Overdue ones
	// have not synced within SyncTimeout because of that.
	Failing, Overdue bool
	// Age since the monitor was started.
	Age time.Duration
}

// Set of monitors. Its methods may be called concurrently, but for Update and Follow.
type Set struct {
	o Options
	// awaits are goroutines of Follow.
	awaits sync.WaitGroup

	mu         sync.Mutex
	byResource map[apischema.GroupResource]*Monitor
	// refresh has an element when Wanted has changed.
	refresh chan struct{}
}

// New makes an empty set.
func New(o Options) *Set {
	if o.Lease == nil {
		o.Lease = o.Informers.Monitor
	}
	if o.Served == nil {
		o.Served = func(map[apischema.GroupVersionResource]discovery.Resource) {}
	}
	if o.Synced == nil {
		o.Synced = func(*Monitor) {}
	}
	if o.Ended == nil {
		o.Ended = func(apischema.GroupVersionResource) {}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Failed == nil {
		o.Failed = func() {}
	}
	return &Set{
		o:          o,
		byResource: map[apischema.GroupResource]*Monitor{},
		refresh:    make(chan struct{}, 1),
	}
}

// Refresh has Wanted asked again.
func (s *Set) Refresh() {
	select {
	case s.refresh <- struct{}{}:
	default:
	}
}

// Start monitors what is served now, if that is known: a standby has its caches ready.
func (s *Set) Start() error {
	served, _ := s.o.Discovery.Resources()
	if len(served) == 0 {
		return nil
	}
	return s.update(served)
}

// Follow what is served until ctx ends; for controller.Controller.Runners.
func (s *Set) Follow(ctx context.Context) error {
	awaiting, cancel := context.WithCancel(ctx)
	defer s.awaits.Wait()
	defer cancel()
	for {
		served, changed := s.o.Discovery.Resources()
		if err := s.update(served); err != nil {
			s.o.Failed()
			return err
		}
		s.await(awaiting)
		s.o.Changed()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-s.refresh:
		}
	}
}

// wanted resources with their preferred versions.
func (s *Set) wanted(served map[apischema.GroupVersionResource]discovery.Resource) map[apischema.GroupVersionResource]discovery.Resource {
	wanted := map[apischema.GroupVersionResource]discovery.Resource{}
	for gvr, resource := range served {
		can := func(verb string) bool { return slices.Contains(resource.Verbs, verb) }
		if resource.Preferred && can("list") && can("watch") && s.o.Wanted(gvr, resource) {
			wanted[gvr] = resource
		}
	}
	return wanted
}

// update the monitors to what is served. Discovery keeps what it has known of
// groups that it cannot ask, so that nothing ends because a server is down.
func (s *Set) update(served map[apischema.GroupVersionResource]discovery.Resource) error {
	wanted := s.wanted(served)
	if len(wanted) == 0 {
		s.o.Logger.Warn("Nothing that can be monitored is served, keeping the monitors as they are")
		s.o.Failed()
		return nil
	}
	s.o.Served(served)
	replaced := s.end(wanted)
	for gvr, resource := range wanted {
		if err := s.start(gvr, resource, replaced[gvr.GroupResource()]); err != nil {
			return err
		}
	}
	// What is left has no successor.
	for _, old := range replaced {
		if _, ok := s.Get(old.GroupResource()); !ok {
			s.o.Ended(old)
		}
	}
	return nil
}

// end the monitors of what is not wanted any more, or in another version. A
// resource has never two monitors, whose events would have no order.
func (s *Set) end(wanted map[apischema.GroupVersionResource]discovery.Resource) map[apischema.GroupResource]apischema.GroupVersionResource {
	ended := map[apischema.GroupResource]apischema.GroupVersionResource{}
	var release []*informers.Informer
	s.mu.Lock()
	for name, monitor := range s.byResource {
		if resource, ok := wanted[monitor.Resource]; ok && resource.Kind == monitor.Kind {
			continue
		}
		monitor.ended = true
		delete(s.byResource, name)
		release = append(release, monitor.Informer)
		ended[name] = monitor.Resource
	}
	s.mu.Unlock()
	for _, informer := range release { // it waits for handlers, which may ask for a monitor
		informer.Release()
	}
	return ended
}

func (s *Set) start(gvr apischema.GroupVersionResource, resource discovery.Resource, replaces apischema.GroupVersionResource) error {
	if _, ok := s.Get(gvr.GroupResource()); ok {
		return nil
	}
	informer, err := s.o.Lease(gvr)
	if err != nil {
		return fmt.Errorf("monitor %s: %w", gvr, err)
	}
	started := &Monitor{
		Resource: gvr,
		Kind:     resource.Kind,
		Informer: informer,
		Replaces: replaces,
		started:  s.o.Clock.Now(),
	}
	// It has to be found by its first event.
	s.mu.Lock()
	s.byResource[gvr.GroupResource()] = started
	s.mu.Unlock()
	s.o.Changed()
	if handler := s.o.Handler(started); handler != nil {
		if err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("monitor %s: %w", gvr, err)
		}
	}
	if Defines(gvr.GroupResource()) {
		if err := informer.AddEventHandler(definitions{s.o.Discovery}); err != nil {
			return fmt.Errorf("monitor %s: %w", gvr, err)
		}
	}
	return nil
}

// await the sync of each monitor that is new.
func (s *Set) await(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, monitor := range s.byResource {
		if !monitor.awaited {
			monitor.awaited = true
			s.awaits.Go(func() { s.awaitSync(ctx, monitor) })
		}
	}
}

func (s *Set) awaitSync(ctx context.Context, awaited *Monitor) {
	reported := awaited.started
	for {
		attempt, cancel := context.WithTimeout(ctx, syncCheck)
		err := awaited.Informer.WaitForSync(attempt)
		cancel()
		now := s.o.Clock.Now()
		s.mu.Lock()
		awaited.synced = err == nil
		awaited.failing = err != nil && awaited.Informer.Err() != nil
		late := err != nil && now.Sub(reported) >= SyncTimeout
		awaited.overdue = awaited.failing && now.Sub(awaited.started) >= SyncTimeout
		ended := awaited.ended
		s.mu.Unlock()
		if ctx.Err() != nil || ended {
			return
		}
		if late {
			reported = now
			s.o.Failed()
			s.o.Logger.Warn("Monitor has not synced", "resource", awaited.Resource.String(), "err", errors.Join(err, awaited.Informer.Err()))
		}
		if err == nil {
			s.o.Synced(awaited)
		}
		s.o.Changed()
		if err == nil {
			return
		}
	}
}

// Get the monitor of a resource.
func (s *Set) Get(resource apischema.GroupResource) (*Monitor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byResource[resource]
	return found, ok
}

// States of all monitors, in no order.
func (s *Set) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]State, 0, len(s.byResource))
	for _, monitor := range s.byResource {
		states = append(states, s.state(monitor))
	}
	return states
}

// State of the monitor of a resource.
func (s *Set) State(resource apischema.GroupResource) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	monitor, ok := s.byResource[resource]
	if !ok {
		return State{}, false
	}
	return s.state(monitor), true
}

func (s *Set) state(m *Monitor) State {
	return State{
		Resource: m.Resource, Synced: m.synced, Failing: m.failing, Overdue: m.overdue,
		Age: s.o.Clock.Since(m.started),
	}
}

// Unsynced monitors, as RESOURCE.GROUP in order, and the number of all.
func (s *Set) Unsynced() (all int, unsynced []string) {
	unsynced = []string{}
	states := s.States()
	for _, state := range states {
		if !state.Synced {
			unsynced = append(unsynced, state.Resource.GroupResource().String())
		}
	}
	slices.Sort(unsynced)
	return len(states), unsynced
}
