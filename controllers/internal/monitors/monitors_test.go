package monitors_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

func TestWhatCanBeListedAndWatchedIsMonitored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unwanted, unlisted, unwatched := other("unwanted"), other("unlisted"), other("unwatched")
		c := newCluster(t, kinds{
			things("v1"): "Thing", things("v1beta1"): "Thing", widgets: "Widget", unwanted: "Unwanted", unlisted: "Unlisted", unwatched: "Unwatched",
		}, func(o *monitors.Options) {
			o.Wanted = func(gvr apischema.GroupVersionResource, resource discovery.Resource) bool {
				if !resource.Preferred {
					t.Errorf("asked for %s, which is not preferred", gvr)
				}
				return gvr != unwanted
			}
		})
		c.verbs[unlisted], c.verbs[unwatched] = []string{"watch", "delete"}, []string{"list", "delete"}
		c.create(widgets, "Widget", "early")
		c.run()
		c.monitors(kinds{things("v1"): "Thing", widgets: "Widget"})
		c.create(widgets, "Widget", "late")
		synctest.Wait()
		c.look(func() {
			if want := []string{"Widget early", "Widget late"}; !slices.Equal(c.events, want) {
				t.Errorf("events %v, want %v", c.events, want)
			}
			if len(c.synced) != 2 || c.told == 0 || c.changed == 0 || c.failed > 0 || len(c.ended) > 0 {
				t.Errorf("synced %v, told %d times what is served, %d changes, %d failures, ended %v", c.synced, c.told, c.changed, c.failed, c.ended)
			}
		})
		if n, unsynced := c.set.Unsynced(); n != 2 || len(unsynced) > 0 {
			t.Errorf("%d monitors, not synced %v", n, unsynced)
		}
	})
}

// served at random: all kinds, and those of preferred versions.
func served(random *rand.Rand) (all, preferred kinds) {
	all, preferred = kinds{widgets: "Widget"}, kinds{widgets: "Widget"}
	for _, name := range []string{"things", "others"} {
		kind := fmt.Sprint(name, random.IntN(2))
		var best apischema.GroupVersionResource
		for _, version := range []string{"v1beta1", "v1", "v2"} { // the last one goes first
			if random.IntN(2) == 0 {
				best = apischema.GroupVersionResource{Group: "a.example.com", Version: version, Resource: name}
				all[best] = kind
			}
		}
		if best.Version != "" {
			preferred[best] = kind
		}
	}
	return all, preferred
}

// version of a resource among kinds; empty when there is none.
func (k kinds) version(resource apischema.GroupResource) apischema.GroupVersionResource {
	for gvr := range k {
		if gvr.GroupResource() == resource {
			return gvr
		}
	}
	return apischema.GroupVersionResource{}
}

// Whatever is served: each resource has one monitor, of its preferred version
// and present kind, and has ended when it has none any more, in no version.
func TestMonitorsFollowWhatIsServed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		all, before := served(random)
		c := newCluster(t, all, nil)
		c.run()
		c.monitors(before)
		for range 50 {
			all, now := served(random)
			c.note(func() {
				c.ended = nil
				clear(c.replaced)
			})
			c.serve(all)
			c.monitors(now)
			var ended []apischema.GroupVersionResource
			for gvr := range before {
				if now.version(gvr.GroupResource()).Version == "" {
					ended = append(ended, gvr)
				}
			}
			replaced := map[apischema.GroupVersionResource]apischema.GroupVersionResource{}
			for gvr, kind := range now {
				if before[gvr] != kind {
					replaced[gvr] = before.version(gvr.GroupResource())
				}
			}
			c.look(func() {
				if !slices.Equal(sorted(c.ended), sorted(ended)) {
					t.Errorf("ended %v, want %v", c.ended, ended)
				}
				if !maps.Equal(c.replaced, replaced) {
					t.Errorf("new monitors replace %v, want %v", c.replaced, replaced)
				}
				if c.failed > 0 {
					t.Errorf("%d failures", c.failed)
				}
			})
			if t.Failed() {
				t.Fatalf("from %v to %v of %v", before, now, all)
			}
			before = now
		}
	})
}

func sorted(all []apischema.GroupVersionResource) []apischema.GroupVersionResource {
	return slices.SortedFunc(slices.Values(all), func(a, b apischema.GroupVersionResource) int {
		return cmp.Compare(a.String(), b.String())
	})
}

func TestAResourceThatCannotBeListedHoldsNothingUp(t *testing.T) {
	for name, cause := range map[string]error{
		"for a time": apierrors.NewServiceUnavailable("starting"),
		"for good":   apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no rights")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, kinds{things("v1"): "Thing", widgets: "Widget"}, nil)
				c.down[widgets.GroupResource()] = cause
				c.run()
				time.Sleep(time.Second)
				synctest.Wait()
				state := func() monitors.State {
					t.Helper()
					s, ok := c.set.State(widgets.GroupResource())
					if !ok {
						t.Fatal("no monitor")
					}
					return s
				}
				if s := state(); s.Synced || !s.Failing || s.Overdue {
					t.Errorf("%+v a second after its start", s)
				}
				if n, unsynced := c.set.Unsynced(); n != 2 || !slices.Equal(unsynced, []string{"widgets.b.example.com"}) {
					t.Errorf("%d monitors, not synced %v", n, unsynced)
				}
				c.look(func() {
					if !slices.Equal(c.synced, []apischema.GroupVersionResource{things("v1")}) || c.failed > 0 {
						t.Errorf("synced %v, %d failures", c.synced, c.failed)
					}
				})
				time.Sleep(3 * monitors.SyncTimeout)
				synctest.Wait()
				if s := state(); s.Synced || !s.Failing || !s.Overdue || s.Age < 3*monitors.SyncTimeout {
					t.Errorf("%+v when it is overdue", s)
				}
				c.look(func() {
					if c.failed != 3 {
						t.Errorf("%d failures, want one in %s", c.failed, monitors.SyncTimeout)
					}
					c.down, c.changed = nil, 0
				})
				time.Sleep(10 * monitors.SyncTimeout) // it rests between two attempts
				synctest.Wait()
				if s := state(); !s.Synced || s.Failing || s.Overdue {
					t.Errorf("%+v after it could be listed", s)
				}
				c.look(func() {
					if want := []apischema.GroupVersionResource{things("v1"), widgets}; !slices.Equal(c.synced, want) || c.changed == 0 {
						t.Errorf("synced %v, want %v; %d changes", c.synced, want, c.changed)
					}
				})
			})
		})
	}
}

// A poll that shows nothing at all proves nothing.
func TestMonitorsStayWhileNothingIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := func(gvr apischema.GroupVersionResource, _ discovery.Resource) bool { return gvr == widgets }
		c := newCluster(t, kinds{things("v1"): "Thing", widgets: "Widget"}, func(o *monitors.Options) { o.Wanted = want })
		c.run()
		c.serve(kinds{things("v1"): "Thing"})
		c.monitors(kinds{widgets: "Widget"})
		c.look(func() {
			if c.failed == 0 || len(c.ended) > 0 {
				t.Errorf("%d failures, ended %v", c.failed, c.ended)
			}
		})
		c.serve(kinds{things("v1"): "Thing", widgets: "Gadget"})
		c.monitors(kinds{widgets: "Gadget"})
	})
}

func TestRefreshAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unwanted := apischema.GroupResource{}
		c := newCluster(t, kinds{things("v1"): "Thing", widgets: "Widget"}, nil)
		d := newCluster(t, kinds{things("v1"): "Thing", widgets: "Widget"}, func(o *monitors.Options) {
			o.Wanted = func(gvr apischema.GroupVersionResource, _ discovery.Resource) bool {
				return gvr.GroupResource() != unwanted
			}
		})
		c.run()
		d.run()
		unwanted = widgets.GroupResource()
		for range 3 {
			d.set.Refresh()
		}
		c.set.Refresh()
		synctest.Wait()
		c.monitors(kinds{things("v1"): "Thing", widgets: "Widget"})
		d.monitors(kinds{things("v1"): "Thing"})
		if !slices.Equal(d.ended, []apischema.GroupVersionResource{widgets}) || len(c.ended) > 0 {
			t.Errorf("ended %v and %v", d.ended, c.ended)
		}
	})
}

func TestAStandbyHasItsMonitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, kinds{widgets: "Widget"}, nil)
		if err := c.set.Start(); err != nil || len(c.set.States()) > 0 {
			t.Errorf("%v monitors before anything is known: %v", c.set.States(), err)
		}
		c.discover()
		if err := c.set.Start(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		c.monitors(kinds{widgets: "Widget"})
		// Nobody awaits them yet. Each life of a controller follows again.
		for range 2 {
			c.follow()()
		}
		c.monitors(kinds{widgets: "Widget"})
		c.look(func() {
			if len(c.replaced) != 1 || len(c.synced) != 1 {
				t.Errorf("monitors %v, synced %v", c.replaced, c.synced)
			}
		})
	})
}

func TestFollowEndsWhileAMonitorIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, kinds{widgets: "Widget"}, nil)
		c.down[widgets.GroupResource()] = apierrors.NewServiceUnavailable("starting")
		c.discover()
		stop := c.follow()
		began := time.Now()
		stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s to end", took)
		}
	})
}

func TestALeaseThatFailsEndsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		c := newCluster(t, kinds{widgets: "Widget"}, func(o *monitors.Options) {
			o.Lease = func(apischema.GroupVersionResource) (*informers.Informer, error) { return nil, broken }
		})
		c.discover()
		if err := c.set.Start(); !errors.Is(err, broken) {
			t.Errorf("start: %v", err)
		}
		if err := c.set.Follow(t.Context()); !errors.Is(err, broken) || c.failed != 1 {
			t.Errorf("follow: %v, %d failures", err, c.failed)
		}
	})
}

// Callbacks that are not wanted may be left out, and a monitor needs no handler.
func TestOnlySomeOptionsAreRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, kinds{things("v1"): "Thing", widgets: "Widget"}, func(o *monitors.Options) {
			o.Served, o.Synced, o.Ended, o.Changed, o.Failed = nil, nil, nil, nil, nil
			o.Handler = func(*monitors.Monitor) cache.ResourceEventHandler { return nil }
		})
		c.run()
		c.monitors(kinds{things("v1"): "Thing", widgets: "Widget"})
		c.serve(kinds{widgets: "Widget"})
		c.monitors(kinds{widgets: "Widget"})
	})
}

func TestADefinitionHasDiscoveryLookAgain(t *testing.T) {
	for _, resource := range []apischema.GroupVersionResource{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	} {
		t.Run(resource.Resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if !monitors.Defines(resource.GroupResource()) || monitors.Defines(widgets.GroupResource()) {
					t.Error("which resources define others is wrong")
				}
				c := newCluster(t, kinds{resource: "Definition", widgets: "Widget"}, nil)
				c.create(resource, "Definition", "early")
				c.run()
				polls := func() int {
					time.Sleep(2 * time.Second) // less than to the next poll
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.polls
				}
				before := polls()
				if before != 1 {
					t.Errorf("%d polls for definitions that were there", before)
				}
				for what, change := range []func(){
					func() { c.create(resource, "Definition", "late") },
					func() { c.update(resource, "Definition", "late") },
					func() { c.delete(resource, "late") },
				} {
					change()
					if after := polls(); after != before+1 {
						t.Errorf("%d polls after change %d of a definition", after-before, what)
					}
					before++
				}
				c.create(widgets, "Widget", "w")
				if after := polls(); after != before {
					t.Error("another object has discovery look again")
				}
			})
		})
	}
}
