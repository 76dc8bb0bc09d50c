package ownslices_test

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
)

const manager = "me"

func newSlice(name, service, managedBy string, changes ...func(*discovery.EndpointSlice)) *discovery.EndpointSlice {
	slice := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, UID: types.UID(name), Generation: 1, ResourceVersion: "1",
		Labels: map[string]string{discovery.LabelManagedBy: managedBy},
	}}
	if service != "" {
		slice.Labels[discovery.LabelServiceName] = service
	}
	for _, change := range changes {
		change(slice)
	}
	return slice
}

func version(v string, generation int64) func(*discovery.EndpointSlice) {
	return func(s *discovery.EndpointSlice) { s.ResourceVersion, s.Generation = v, generation }
}

func TestOf(t *testing.T) {
	going := func(s *discovery.EndpointSlice) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownslices.Indexers())
	for _, slice := range []*discovery.EndpointSlice{
		newSlice("web-2", "web", manager), newSlice("web-1", "web", manager), newSlice("web-3", "web", "other"),
		newSlice("web-4", "web", manager, going), newSlice("db", "db", manager), newSlice("stray", "", manager),
	} {
		if err := store.Add(slice); err != nil {
			t.Fatal(err)
		}
	}
	found, err := ownslices.Of(store, web, manager)
	if err != nil || len(found) != 2 || found[0].Name != "web-1" || found[1].Name != "web-2" {
		t.Errorf("found %v, %v", found, err)
	}
}

// Ports and addresses of what Of returns can be sorted without changing the store.
func TestOfReturnsWhatMayBeSorted(t *testing.T) {
	stored := newSlice("web-1", "web", manager, func(s *discovery.EndpointSlice) {
		s.Ports = []discovery.EndpointPort{{Name: new(string)}, {}}
		s.Endpoints = []discovery.Endpoint{{Addresses: []string{"b", "a"}}}
	})
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownslices.Indexers())
	if err := store.Add(stored); err != nil {
		t.Fatal(err)
	}
	found, err := ownslices.Of(store, web, manager)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found[0].Endpoints[0].Addresses)
	slices.Reverse(found[0].Ports)
	if stored.Endpoints[0].Addresses[0] != "b" || stored.Ports[0].Name == nil {
		t.Errorf("the stored slice is %+v", stored)
	}
}

func TestHandler(t *testing.T) {
	owned := func(s *discovery.EndpointSlice) { s.OwnerReferences = []metav1.OwnerReference{{UID: "1"}} }
	for _, test := range []struct {
		name  string
		event func(*ownslices.Handler)
		want  []string
	}{
		{"initial list", func(h *ownslices.Handler) { h.OnAdd(newSlice("s", "web", manager), true) }, []string{"initial web"}},
		{"a slice of others", func(h *ownslices.Handler) { h.OnAdd(newSlice("s", "web", "other"), false) }, nil},
		{"a slice without service", func(h *ownslices.Handler) { h.OnAdd(newSlice("s", "", manager), false) }, nil},
		{"a new slice", func(h *ownslices.Handler) { h.OnAdd(newSlice("s", "web", manager), false) }, []string{"changed web"}},
		{"an own slice", func(h *ownslices.Handler) { h.OnAdd(newSlice("own", "web", manager), false) }, nil},
		{"an own write", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("own", "web", manager), newSlice("own", "web", manager, version("2", 1)))
		}, nil},
		{"an edit", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("own", "web", manager), newSlice("own", "web", manager, version("2", 2)))
		}, []string{"changed web"}},
		{"an owner taken away", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("own", "web", manager, owned), newSlice("own", "web", manager, version("2", 1)))
		}, []string{"changed web"}},
		{"a resync", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("s", "web", manager), newSlice("s", "web", manager, version("1", 9)))
		}, nil},
		{"moved to another service", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("own", "web", manager), newSlice("own", "db", manager, version("2", 2)))
		}, []string{"changed web", "changed db"}},
		{"taken away from all", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("own", "web", manager), newSlice("own", "", manager, version("2", 2)))
		}, []string{"changed web"}},
		{"given to others", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("own", "web", manager), newSlice("own", "web", "other", version("2", 2)))
		}, []string{"changed web"}},
		{"taken from others", func(h *ownslices.Handler) {
			h.OnUpdate(newSlice("s", "web", "other"), newSlice("s", "web", manager, version("2", 2)))
		}, []string{"changed web"}},
		{"deleted by others", func(h *ownslices.Handler) { h.OnDelete(newSlice("own", "web", manager)) }, []string{"gone web"}},
		{"missed deletion", func(h *ownslices.Handler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Obj: newSlice("own", "web", manager)})
		}, []string{"gone web"}},
		{"own deletion", func(h *ownslices.Handler) { h.OnDelete(newSlice("doomed", "web", manager)) }, nil},
		{"something else", func(h *ownslices.Handler) { h.OnAdd("", false); h.OnUpdate("", ""); h.OnDelete("") }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			tracker := ownslices.NewTracker()
			tracker.Wrote(web, newSlice("own", "web", manager))
			tracker.Deletes(web, "doomed")
			var got []string
			note := func(what string) func(cache.ObjectName) {
				return func(service cache.ObjectName) { got = append(got, what+" "+service.Name) }
			}
			test.event(&ownslices.Handler{
				Manager: manager, Tracker: tracker, Initial: note("initial"), Changed: note("changed"), Gone: note("gone"),
				Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNamePrefix(t *testing.T) {
	long := strings.Repeat("a", 253)
	for owner, want := range map[string]string{"web": "web-", "a.b": "a.b-", long: long + "-", "x_y": "x_y"} {
		if got := ownslices.NamePrefix(owner); got != want {
			t.Errorf("%s: %s", owner, got)
		}
	}
}

func TestTotals(t *testing.T) {
	gauge := func() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{}) }
	endpoints, count, desired := gauge(), gauge(), gauge()
	totals := ownslices.NewTotals(endpoints, count, desired)
	db := cache.NewObjectName("a", "db")
	for _, step := range []struct {
		service                   cache.ObjectName
		total                     ownslices.Total
		endpoints, count, desired float64
	}{
		{web, ownslices.Total{Endpoints: 5, Slices: 3, Desired: 1}, 5, 3, 1},
		{db, ownslices.Total{Endpoints: 1, Slices: 1, Desired: 1}, 6, 4, 2},
		{web, ownslices.Total{Endpoints: 2, Slices: 1, Desired: 1}, 3, 2, 2},
		{web, ownslices.Total{}, 1, 1, 1},
		{web, ownslices.Total{}, 1, 1, 1},
	} {
		totals.Set(step.service, step.total)
		if e, c, d := value(t, endpoints), value(t, count), value(t, desired); e != step.endpoints || c != step.count || d != step.desired {
			t.Errorf("%+v: %v endpoints, %v slices, %v desired", step, e, c, d)
		}
	}
}

func value(t *testing.T, gauge prometheus.Gauge) float64 {
	t.Helper()
	var sample dto.Metric
	if err := gauge.Write(&sample); err != nil {
		t.Fatal(err)
	}
	return sample.Gauge.GetValue()
}
