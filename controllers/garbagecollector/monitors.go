package garbagecollector

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
)

// openTimeout is how long anything waits for a monitor. What is deleted is
// decided without it; but an owner that it has not shown yet costs a read.
// Owners whose dependents must all be known wait for monitors.SyncTimeout.
const openTimeout = 10 * time.Second

// watched are the monitors, one for each resource whose objects can be garbage.
type watched struct {
	*monitors.Set
	c *collector
	// evaluating is held while the gate is set.
	evaluating sync.Mutex

	mu      sync.Mutex
	ignored map[apischema.GroupResource]bool
}

func newWatched(c *collector, env controller.Env, ignored map[apischema.GroupResource]bool) *watched {
	w := &watched{c: c, ignored: ignored}
	w.Set = monitors.New(monitors.Options{
		Informers: env.Informers,
		Discovery: env.Discovery,
		Clock:     env.Clock,
		Logger:    env.Logger,
		Wanted:    w.wanted,
		Handler: func(m *monitors.Monitor) cache.ResourceEventHandler {
			return handler{c: c, resource: m.Resource, apiVersion: m.Resource.GroupVersion().String(), kind: m.Kind}
		},
		Served: func(served map[apischema.GroupVersionResource]discovery.Resource) {
			c.apply(c.kinds.set(served), false)
		},
		Synced: func(m *monitors.Monitor) {
			if m.Replaces.Resource != "" {
				// What the former version has shown and the present one does not is gone.
				c.apply(c.graph.drop(m.Replaces, func(i identity) bool { return objectOf(m, i) != nil }), false)
			}
		},
		Ended: func(old apischema.GroupVersionResource) {
			c.apply(c.graph.drop(old, func(identity) bool { return false }), false)
		},
		Changed: w.evaluate,
		Failed:  c.syncErrors.Inc,
	})
	return w
}

// ignore other resources from now on.
func (w *watched) ignore(ignored map[apischema.GroupResource]bool) {
	w.mu.Lock()
	w.ignored = ignored
	w.mu.Unlock()
	w.Refresh()
}

func (w *watched) wanted(gvr apischema.GroupVersionResource, resource discovery.Resource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(resource.Verbs, "delete") && !w.ignored[gvr.GroupResource()]
}

// evaluate whether the gate may be opened, and whether the graph is complete.
func (w *watched) evaluate() {
	w.evaluating.Lock()
	states := w.States()
	open, complete := len(states) > 0, len(states) > 0
	for _, state := range states {
		open = open && (state.Synced || state.Failing || state.Age >= openTimeout)
		complete = complete && (state.Synced || state.Overdue)
	}
	released := w.c.gate.set(open, complete)
	w.evaluating.Unlock()
	for _, changes := range released {
		w.c.enqueue(changes, true)
	}
}

// object as its monitor shows it; nil when it does not.
func (w *watched) object(resource apischema.GroupVersionResource, i identity) metav1.Object {
	monitor, ok := w.Get(resource.GroupResource())
	if !ok || monitor.Resource != resource {
		return nil
	}
	return objectOf(monitor, i)
}

func objectOf(m *monitors.Monitor, i identity) metav1.Object {
	stored, exists, err := m.Informer.Indexer().GetByKey(cache.NewObjectName(i.namespace, i.name).String())
	if err != nil || !exists {
		return nil
	}
	object, err := meta.Accessor(stored)
	if err != nil || object.GetUID() != i.uid {
		return nil
	}
	return object
}
