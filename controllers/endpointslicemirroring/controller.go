// Package endpointslicemirroring copies Endpoints that somebody keeps by hand,
// for a Service without selector, into EndpointSlices, so that consumers that
// read only slices see them.
package endpointslicemirroring

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// manager is the value of the label endpointslice.kubernetes.io/managed-by.
	manager = "endpointslicemirroring-controller.k8s.io"
	// Failing Endpoints are tried again after firstRetry, then twice as long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = 100 * time.Second
	// maxRetries with back-off; after that every slowRetry.
	maxRetries = 15
	slowRetry  = 5 * time.Minute
)

// Descriptor describes endpointslice-mirroring-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.EndpointSliceMirroringControllerSection(),
		ServiceAccount: "endpointslicemirroring-controller",
		EventSource:    "endpoint-slice-mirroring-controller",
		Requires: []apischema.GroupVersionResource{
			v1.SchemeGroupVersion.WithResource("services"),
			v1.SchemeGroupVersion.WithResource("endpoints"),
			discovery.SchemeGroupVersion.WithResource("endpointslices"),
		},
		LiveFields: []string{"maxEndpointsPerSubset", "endpointUpdatesBatchPeriod"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services", "endpoints"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"services/finalizers", "endpoints/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
				Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// mirrorController reconciles Endpoints, which have the name of their Service.
type mirrorController struct {
	services  cache.Indexer
	endpoints cache.Indexer
	slices    cache.Indexer
	events    record.EventRecorder
	logger    *slog.Logger
	clock     clock.PassiveClock
	metrics   *metrics
	writer    *ownslices.Writer
	tracker   *ownslices.Tracker
	unsure    *unsettled.Keys
	// catchUp lets the caches hold what the API server held at a time, which is
	// asked for once; began is when the controller was made.
	catchUp func(ctx context.Context, since time.Time) error
	began   time.Time

	maxPerSubset atomic.Int64
	batch        atomic.Int64
	queue        *work.Queue[work.ObjectName]
}

// New makes the controller.
func New(env controller.Env, section *schema.EndpointSliceMirroringController) (*controller.Controller, error) {
	services, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("services"))
	if err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	endpoints, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("endpoints"))
	if err != nil {
		return nil, fmt.Errorf("watch endpoints: %w", err)
	}
	slices, err := env.Informers.Informer(discovery.SchemeGroupVersion.WithResource("endpointslices"))
	if err != nil {
		return nil, fmt.Errorf("watch EndpointSlices: %w", err)
	}
	if err := slices.AddIndexers(ownslices.Indexers()); err != nil {
		return nil, fmt.Errorf("index EndpointSlices: %w", err)
	}
	metrics, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	c := &mirrorController{
		services:  services.Indexer(),
		endpoints: endpoints.Indexer(),
		slices:    slices.Indexer(),
		events:    env.Events,
		logger:    env.Logger,
		clock:     env.Clock,
		metrics:   metrics,
		tracker:   ownslices.NewTracker(),
		unsure:    unsettled.New(env.Informers.CatchUp, env.Clock),
		catchUp:   env.Informers.CatchUp,
		began:     env.Clock.Now(),
	}
	c.writer = &ownslices.Writer{Client: env.Client.DiscoveryV1(), Tracker: c.tracker, Unsure: c.unsure, Count: metrics.changed}
	c.apply(section)
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{
		Name: "endpoint_slice_mirroring", Reconcile: c.reconcile, MaxRetries: maxRetries, SlowRetry: slowRetry,
		Limiter: work.NewLimiter[work.ObjectName](firstRetry, lastRetry),
	})
	for _, watch := range []struct {
		of interface {
			AddEventHandler(cache.ResourceEventHandler) error
		}
		resource string
		handler  cache.ResourceEventHandler
	}{
		{services, "services", c.serviceHandler()},
		{endpoints, "endpoints", c.endpointsHandler()},
		{slices, "EndpointSlices", c.sliceHandler()},
	} {
		if err := watch.of.AddEventHandler(watch.handler); err != nil {
			return nil, fmt.Errorf("watch %s: %w", watch.resource, err)
		}
	}
	return &controller.Controller{ApplyLive: c.applyLive}, nil
}

func (c *mirrorController) apply(section *schema.EndpointSliceMirroringController) {
	c.maxPerSubset.Store(int64(section.MaxEndpointsPerSubset))
	c.batch.Store(int64(section.EndpointUpdatesBatchPeriod.Duration))
}

// applyLive looks at all Endpoints again when another number of addresses is mirrored.
func (c *mirrorController) applyLive(section schema.Section) {
	typed, ok := section.(*schema.EndpointSliceMirroringController)
	if !ok {
		return
	}
	resized := c.maxPerSubset.Load() != int64(typed.MaxEndpointsPerSubset)
	c.apply(typed)
	if !resized {
		return
	}
	for _, obj := range c.endpoints.List() {
		if endpoints, ok := obj.(*v1.Endpoints); ok && mirrorable(endpoints) {
			c.queue.AddInitial(cache.MetaObjectToName(endpoints))
		}
	}
}
