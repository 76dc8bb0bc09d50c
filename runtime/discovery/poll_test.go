package discovery_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"

	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
)

// server is an API server's aggregated discovery.
type server struct {
	clientdiscovery.DiscoveryInterfaces

	mu        sync.Mutex
	polls     int
	err       error
	resources map[schema.GroupVersion][]string
	failed    map[schema.GroupVersion]error
	groups    []*metav1.APIGroup
}

func (s *server) GroupsAndMaybeResourcesWithContext(context.Context) (
	*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls++
	if s.err != nil {
		return nil, nil, nil, s.err
	}
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for gv, names := range s.resources {
		list := &metav1.APIResourceList{GroupVersion: gv.String()}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name}, metav1.APIResource{Name: name + "/status"})
		}
		lists[gv] = list
	}
	groups := &metav1.APIGroupList{}
	for _, group := range s.groups {
		groups.Groups = append(groups.Groups, *group)
	}
	return groups, lists, s.failed, nil
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *server) pollCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls
}

var (
	core    = schema.GroupVersion{Version: "v1"}
	other   = schema.GroupVersion{Group: "other.example.com", Version: "v1"}
	pods    = core.WithResource("pods")
	widgets = other.WithResource("widgets")
)

// run d until the returned function is called, which waits for its end.
func run(d *discovery.Discovery) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	return func() { cancel(); <-done }
}

func newServer() *server {
	return &server{resources: map[schema.GroupVersion][]string{core: {"pods"}, other: {"widgets"}}}
}

func newDiscovery(s *server) *discovery.Discovery {
	return discovery.New(discovery.Options{Client: s, Logger: slog.New(slog.DiscardHandler)})
}

func closed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

func TestNothingIsKnownBeforeTheFirstSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.err = errors.New("starting")
		d := newDiscovery(s)
		changed := d.Changed()
		defer run(d)()
		synctest.Wait()
		if closed(d.Ready()) || closed(changed) || d.Served(pods) || d.Err() == nil {
			t.Errorf("ready %t, changed %t, served %t, error %v", closed(d.Ready()), closed(changed), d.Served(pods), d.Err())
		}
		s.set(func(s *server) { s.err = nil })
		began := time.Now()
		<-d.Ready()
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("the second attempt came after %s", waited)
		}
		synctest.Wait()
		if !closed(changed) || !d.Served(pods) || d.Err() != nil {
			t.Errorf("changed %t, served %t, error %v", closed(changed), d.Served(pods), d.Err())
		}
		if resources, _ := d.Resources(); len(resources) != 2 {
			t.Errorf("resources %v, want two without subresources", resources)
		}
	})
}

func TestPollsAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := newDiscovery(s)
		defer run(d)()
		<-d.Ready()
		changed := d.Changed()
		time.Sleep(5*time.Minute + time.Second)
		if got := s.pollCount(); got != 11 {
			t.Errorf("%d polls in five minutes, want 11", got)
		}
		if closed(changed) {
			t.Error("told of a change that was none")
		}
	})
}

func TestRechecksMakeOnePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := newDiscovery(s)
		defer run(d)()
		<-d.Ready()
		for range 10 {
			d.Recheck()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if got := s.pollCount(); got != 2 {
			t.Errorf("%d polls, want the first and one for all rechecks", got)
		}
		d.Recheck()
		time.Sleep(2 * time.Second)
		if got := s.pollCount(); got != 3 {
			t.Errorf("%d polls, want one more for the later recheck", got)
		}
	})
}

func TestNewResourceIsServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		delete(s.resources, other)
		d := newDiscovery(s)
		defer run(d)()
		<-d.Ready()
		if d.Served(widgets) {
			t.Error("served before it is")
		}
		_, changed := d.Resources()
		s.set(func(s *server) { s.resources[other] = []string{"widgets"} })
		d.Recheck()
		began := time.Now()
		<-changed
		if waited := time.Since(began); waited > 2*time.Second || !d.Served(widgets) {
			t.Errorf("served %t after %s", d.Served(widgets), waited)
		}
	})
}

func TestResourceIsGoneWhenTwoPollsMissIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := newDiscovery(s)
		defer run(d)()
		<-d.Ready()
		changed := d.Changed()

		// One poll of a server that does not know all of its groups yet.
		s.set(func(s *server) { delete(s.resources, other) })
		time.Sleep(31 * time.Second)
		s.set(func(s *server) { s.resources[other] = []string{"widgets"} })
		time.Sleep(time.Minute)
		if !d.Served(widgets) || closed(changed) {
			t.Errorf("served %t, changed %t after one poll without it", d.Served(widgets), closed(changed))
		}

		s.set(func(s *server) { delete(s.resources, other) })
		began := time.Now()
		<-changed
		if d.Served(widgets) || !d.Served(pods) {
			t.Errorf("widgets served %t, pods served %t", d.Served(widgets), d.Served(pods))
		}
		if waited := time.Since(began); waited > 33*time.Second {
			t.Errorf("gone after %s, want the interval and two seconds at most", waited)
		}
	})
}

func TestUnavailableGroupKeepsItsResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := newDiscovery(s)
		defer run(d)()
		<-d.Ready()
		changed := d.Changed()
		s.set(func(s *server) {
			delete(s.resources, other)
			s.failed = map[schema.GroupVersion]error{other: errors.New("stale")}
		})
		time.Sleep(time.Hour)
		if !d.Served(widgets) || closed(changed) || d.Err() == nil {
			t.Errorf("served %t, changed %t, error %v while the group fails", d.Served(widgets), closed(changed), d.Err())
		}
		s.set(func(s *server) { s.failed = nil })
		<-changed
		if d.Served(widgets) {
			t.Error("served although the group is gone")
		}
		time.Sleep(time.Minute)
		if err := d.Err(); err != nil {
			t.Errorf("error %v", err)
		}
	})
}

func TestServerDownKeepsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := newDiscovery(s)
		defer run(d)()
		<-d.Ready()
		changed := d.Changed()
		s.set(func(s *server) { s.err = errors.New("connection refused") })
		time.Sleep(time.Hour)
		if !d.Served(widgets) || !d.Served(pods) || closed(changed) || d.Err() == nil {
			t.Errorf("widgets %t, pods %t, changed %t, error %v", d.Served(widgets), d.Served(pods), closed(changed), d.Err())
		}
		if polls := s.pollCount(); polls > 130 {
			t.Errorf("%d polls in an hour", polls)
		}
	})
}

func TestOneVersionOfEachResourceIsPreferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v1, v2 := schema.GroupVersion{Group: "g.example.com", Version: "v1"}, schema.GroupVersion{Group: "g.example.com", Version: "v2"}
		s := &server{
			resources: map[schema.GroupVersion][]string{core: {"pods"}, v1: {"old", "both"}, v2: {"both"}},
			groups: []*metav1.APIGroup{{
				Name:             "g.example.com",
				Versions:         []metav1.GroupVersionForDiscovery{{Version: "v2"}, {Version: "v1"}},
				PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v2"},
			}},
		}
		d := newDiscovery(s)
		stop := run(d)
		defer stop()
		preferred := func(want ...schema.GroupVersionResource) {
			t.Helper()
			resources, _ := d.Resources()
			got := map[schema.GroupVersionResource]bool{}
			for gvr, resource := range resources {
				if resource.Preferred {
					got[gvr] = true
				}
			}
			if len(got) != len(want) {
				t.Errorf("preferred %v, want %v", got, want)
			}
			for _, gvr := range want {
				if !got[gvr] {
					t.Errorf("preferred %v, want %v", got, want)
				}
			}
		}
		synctest.Wait()
		preferred(pods, v1.WithResource("old"), v2.WithResource("both"))

		// A version that has only just vanished is not preferred to one that is served.
		s.set(func(s *server) { s.resources[v2] = nil })
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if !d.Served(v2.WithResource("both")) {
			t.Error("a version counts as gone after one poll")
		}
		preferred(pods, v1.WithResource("old"), v1.WithResource("both"))
	})
}
