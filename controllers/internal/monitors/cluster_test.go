package monitors_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// interval between two polls of discovery.
const interval = 30 * time.Second

// everything that can be done with a resource.
var everything = []string{"create", "delete", "list", "watch"}

// things of a version, of one resource in a group of its own.
func things(version string) apischema.GroupVersionResource {
	return apischema.GroupVersionResource{Group: "a.example.com", Version: version, Resource: "things"}
}

// other resource, of another group.
func other(name string) apischema.GroupVersionResource {
	return apischema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: name}
}

var widgets = other("widgets")

// kinds that are served, by resource; each has all verbs unless said otherwise.
type kinds map[apischema.GroupVersionResource]string

// cluster with a set of monitors, in a bubble of synctest.
type cluster struct {
	clientdiscovery.DiscoveryInterfaces

	t        *testing.T
	metadata *metadatafake.FakeMetadataClient
	pool     *informers.Pool
	lease    *informers.Lease
	set      *monitors.Set
	served   *discovery.Discovery

	mu    sync.Mutex
	kinds kinds
	verbs map[apischema.GroupVersionResource][]string
	down  map[apischema.GroupResource]error
	polls int
	// What the set has told.
	replaced              map[apischema.GroupVersionResource]apischema.GroupVersionResource
	synced, ended         []apischema.GroupVersionResource
	events                []string
	changed, failed, told int
}

// newCluster that serves kinds. Change may change the options of the set.
func newCluster(t *testing.T, served kinds, change func(*monitors.Options)) *cluster {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		t: t, metadata: metadatafake.NewSimpleMetadataClient(scheme), kinds: served,
		verbs:    map[apischema.GroupVersionResource][]string{},
		down:     map[apischema.GroupResource]error{},
		replaced: map[apischema.GroupVersionResource]apischema.GroupVersionResource{},
	}
	fail := func(action clienttesting.Action) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		err := c.down[action.GetResource().GroupResource()]
		return err != nil, err
	}
	c.metadata.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, err := fail(action)
		return handled, nil, err
	})
	logger := slog.New(slog.DiscardHandler)
	c.pool = informers.NewPool(informers.Options{Metadata: c.metadata, Linger: -1, Logger: logger})
	c.lease = c.pool.Lease("test")
	c.lease.Start()
	c.served = discovery.New(discovery.Options{Client: c, Interval: interval, Logger: logger})
	o := monitors.Options{
		Informers: c.lease, Discovery: c.served, Clock: clock.RealClock{}, Logger: logger,
		Wanted:  func(apischema.GroupVersionResource, discovery.Resource) bool { return true },
		Handler: c.handler,
		Served: func(map[apischema.GroupVersionResource]discovery.Resource) {
			c.note(func() { c.told++ })
		},
		Synced:  func(m *monitors.Monitor) { c.note(func() { c.synced = append(c.synced, m.Resource) }) },
		Ended:   func(gvr apischema.GroupVersionResource) { c.note(func() { c.ended = append(c.ended, gvr) }) },
		Changed: func() { c.note(func() { c.changed++ }) },
		Failed:  func() { c.note(func() { c.failed++ }) },
	}
	if change != nil {
		change(&o)
	}
	c.set = monitors.New(o)
	return c
}

// handler notes what it is shown, as KIND NAME.
func (c *cluster) handler(m *monitors.Monitor) cache.ResourceEventHandler {
	c.note(func() { c.replaced[m.Resource] = m.Replaces })
	return cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(object any, _ bool) {
		shown, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			c.t.Errorf("a %T is shown", object)
			return
		}
		// A monitor has to be found by its first event.
		if found, ok := c.set.Get(m.Resource.GroupResource()); !ok || found != m {
			c.t.Errorf("the monitor of %s is not found by its event", m.Resource)
		}
		c.note(func() { c.events = append(c.events, m.Kind+" "+shown.Name) })
	}}
}

func (c *cluster) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// look at what was noted.
func (c *cluster) look(at func()) { c.note(at) }

// run discovery and the set until the bubble's test ends, and return when all
// that is served is known.
func (c *cluster) run() {
	c.t.Helper()
	c.discover()
	stop := c.follow()
	c.t.Cleanup(stop)
}

// discover what is served until the test ends.
func (c *cluster) discover() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	polling.Go(func() { c.served.Run(ctx) })
	c.t.Cleanup(func() {
		cancel()
		polling.Wait()
		c.lease.Release()
		c.pool.Close()
	})
	<-c.served.Ready()
}

// follow what is served until stop is called.
func (c *cluster) follow() (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		if err := c.set.Follow(ctx); err != nil {
			c.t.Error(err)
		}
	})
	synctest.Wait()
	return func() {
		cancel()
		following.Wait()
	}
}

// serve other kinds, and return when that is known. What is not served any more
// is looked for twice. The clock is a bubble's: it jumps, and nothing is waited for.
func (c *cluster) serve(served kinds) {
	c.note(func() { c.kinds = served })
	time.Sleep(2 * interval)
	synctest.Wait()
}

// GroupsAndMaybeResourcesWithContext implements clientdiscovery.AggregatedDiscoveryInterfaceWithContext.
func (c *cluster) GroupsAndMaybeResourcesWithContext(context.Context) (
	*metav1.APIGroupList, map[apischema.GroupVersion]*metav1.APIResourceList, map[apischema.GroupVersion]error, error,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polls++
	if len(c.kinds) == 0 {
		return nil, nil, nil, errors.New("starting")
	}
	lists := map[apischema.GroupVersion]*metav1.APIResourceList{}
	for gvr, kind := range c.kinds {
		list := lists[gvr.GroupVersion()]
		if list == nil {
			list = &metav1.APIResourceList{GroupVersion: gvr.GroupVersion().String()}
			lists[gvr.GroupVersion()] = list
		}
		verbs, ok := c.verbs[gvr]
		if !ok {
			verbs = everything
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: gvr.Resource, Kind: kind, Namespaced: true, Verbs: verbs})
	}
	return &metav1.APIGroupList{}, lists, nil, nil
}

// monitored resources, with their kinds as the set has them.
func (c *cluster) monitored() kinds {
	c.t.Helper()
	found := kinds{}
	for _, state := range c.set.States() {
		m, ok := c.set.Get(state.Resource.GroupResource())
		if !ok || m.Resource != state.Resource {
			c.t.Errorf("the monitor of %s is not found", state.Resource)
			continue
		}
		if one, ok := c.set.State(state.Resource.GroupResource()); !ok || one != state {
			c.t.Errorf("state %+v of one of the monitors, %+v among all", one, state)
		}
		found[state.Resource] = m.Kind
	}
	return found
}

// monitors are want, and the process has their informers and no other.
func (c *cluster) monitors(want kinds) {
	c.t.Helper()
	if got := c.monitored(); !maps.Equal(got, want) {
		c.t.Errorf("monitors %v, want %v", got, want)
	}
	var informers, wanted []string
	for _, status := range c.pool.Status() {
		if len(status.Users) > 0 {
			informers = append(informers, status.Resource)
		}
	}
	for gvr := range want {
		wanted = append(wanted, strings.Join([]string{gvr.Resource, gvr.Version, gvr.Group}, "."))
	}
	slices.Sort(informers)
	slices.Sort(wanted)
	if !slices.Equal(informers, wanted) {
		c.t.Errorf("informers %v, want %v", informers, wanted)
	}
}

func metadataOf(gvr apischema.GroupVersionResource, kind, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: gvr.GroupVersion().String(), Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"},
	}
}

func (c *cluster) create(gvr apischema.GroupVersionResource, kind, name string) {
	c.t.Helper()
	if err := c.metadata.Tracker().Create(gvr, metadataOf(gvr, kind, name), "n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) update(gvr apischema.GroupVersionResource, kind, name string) {
	c.t.Helper()
	object := metadataOf(gvr, kind, name)
	object.Labels = map[string]string{"a": "b"}
	if err := c.metadata.Tracker().Update(gvr, object, "n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) delete(gvr apischema.GroupVersionResource, name string) {
	c.t.Helper()
	if err := c.metadata.Tracker().Delete(gvr, "n", name); err != nil {
		c.t.Fatal(err)
	}
}
