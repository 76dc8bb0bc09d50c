package endpointslicemirroring

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
)

// The API server lets no invalid address in, but an old one may have.
func TestInvalidAddressesAreToldAndLeftOut(t *testing.T) {
	t.Parallel()
	caughtUp := func(context.Context, time.Time) error { return nil }
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}

	client, events := fake.NewClientset(), record.NewFakeRecorder(10)
	c := &mirrorController{
		services:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		endpoints: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		slices:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownslices.Indexers()),
		events:    events,
		clock:     clock.RealClock{},
		metrics:   metrics,
		tracker:   ownslices.NewTracker(),
		unsure:    unsettled.New(caughtUp, clock.RealClock{}),
		catchUp:   caughtUp,
	}
	c.writer = &ownslices.Writer{Client: client.DiscoveryV1(), Tracker: c.tracker, Unsure: c.unsure, Count: metrics.changed}
	c.maxPerSubset.Store(1000)
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "db"}
	if err := c.services.Add(&v1.Service{ObjectMeta: meta}); err != nil {
		t.Fatal(err)
	}
	endpoints := &v1.Endpoints{ObjectMeta: meta, Subsets: []v1.EndpointSubset{subset([]string{"10.0.0.1", "10.0.0.300"}, []string{"db.example"}, 80)}}
	if err := c.endpoints.Add(endpoints); err != nil {
		t.Fatal(err)
	}
	if err := c.sync(t.Context(), cache.NewObjectName("ns", "db")); err != nil {
		t.Fatal(err)
	}
	slices, err := client.DiscoveryV1().EndpointSlices("ns").List(t.Context(), metav1.ListOptions{LabelSelector: discovery.LabelManagedBy + "=" + manager})
	if err != nil {
		t.Fatal(err)
	}
	if err := lists("80: [10.0.0.1]R")(slices.Items); err != nil {
		t.Error(err)
	}
	close(events.Events)
	var told []string
	for event := range events.Events {
		told = append(told, event)
	}
	if want := "Warning InvalidIPAddress Skipped 2 invalid IP addresses when mirroring to EndpointSlices"; len(told) != 1 || told[0] != want {
		t.Errorf("events %q, want %q", told, want)
	}
}
