// Package endpointslice keeps the EndpointSlices of each Service that has a
// selector: they list its pods, with their conditions, node and zone, for
// kube-proxy, DNS and gateways. How endpoints are spread over slices, and which
// hints they get, is decided by k8s.io/endpointslice; this package decides when.
package endpointslice

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// manager is the value of the label endpointslice.kubernetes.io/managed-by.
	manager = "endpointslice-controller.k8s.io"
	// A failing Service is tried again after firstRetry, then twice as long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// maxRetries with back-off.
	maxRetries = 15
	// changeDelay gathers what somebody else does to slices, and keeps a quarrel over them slow.
	changeDelay = time.Second
	// gatePreferSame lets Services prefer endpoints of the same zone or node.
	gatePreferSame = "PreferSameTrafficDistribution"
)

// Descriptor describes endpointslice-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.EndpointSliceControllerSection(),
		ServiceAccount: "endpointslice-controller",
		EventSource:    "endpoint-slice-controller",
		Requires: []apischema.GroupVersionResource{
			v1.SchemeGroupVersion.WithResource("services"),
			v1.SchemeGroupVersion.WithResource("pods"),
			v1.SchemeGroupVersion.WithResource("nodes"),
			discovery.SchemeGroupVersion.WithResource("endpointslices"),
		},
		ReadsFeatureGates: []string{gatePreferSame},
		LiveFields:        []string{"maxEndpointsPerSlice", "endpointUpdatesBatchPeriod"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services", "pods", "nodes"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"services/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
				Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// sliceController reconciles Services, by namespace and name.
type sliceController struct {
	client   kubernetes.Interface
	services cache.Indexer
	pods     cache.Indexer
	slices   cache.Indexer
	nodes    corelisters.NodeLister
	events   record.EventRecorder
	logger   *slog.Logger
	// logr is the same for the library.
	logr       logr.Logger
	clock      clock.PassiveClock
	metrics    *metrics
	writer     *ownslices.Writer
	tracker    *ownslices.Tracker
	unsure     *unsettled.Keys
	pace       *servicepods.Pace
	triggers   *util.TriggerTimeTracker
	topology   *topologycache.TopologyCache
	preferSame bool
	// nodesKnown is done when the topology has seen the nodes.
	nodesKnown sync.Once
	showing    sync.Mutex
	// shares of the zones that the topology knows, as sharesOf; used by its queue alone.
	shares map[string]int64

	maxPerSlice atomic.Int64
	batch       atomic.Int64
	queue       *work.Queue[work.ObjectName]
	nodesQueue  *work.Queue[string]
}

// New makes the controller.
func New(env controller.Env, section *schema.EndpointSliceController) (*controller.Controller, error) {
	services, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("services"))
	if err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	pods, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	nodes, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("nodes"))
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	slices, err := env.Informers.Informer(discovery.SchemeGroupVersion.WithResource("endpointslices"))
	if err != nil {
		return nil, fmt.Errorf("watch EndpointSlices: %w", err)
	}
	for _, indexers := range []cache.Indexers{servicepods.ServiceIndexers(), hintIndexers()} {
		if err := services.AddIndexers(indexers); err != nil {
			return nil, fmt.Errorf("index services: %w", err)
		}
	}
	for _, indexers := range []cache.Indexers{servicepods.PodIndexers(), ownerindex.Nodes()} {
		if err := pods.AddIndexers(indexers); err != nil {
			return nil, fmt.Errorf("index pods: %w", err)
		}
	}
	if err := slices.AddIndexers(ownslices.Indexers()); err != nil {
		return nil, fmt.Errorf("index EndpointSlices: %w", err)
	}
	metrics, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	c := &sliceController{
		client:     env.Client,
		services:   services.Indexer(),
		pods:       pods.Indexer(),
		slices:     slices.Indexer(),
		nodes:      corelisters.NewNodeLister(nodes.Indexer()),
		events:     env.Events,
		logger:     env.Logger,
		logr:       logr.FromSlogHandler(env.Logger.Handler()),
		clock:      env.Clock,
		metrics:    metrics,
		tracker:    ownslices.NewTracker(),
		unsure:     unsettled.New(env.Informers.CatchUp, env.Clock),
		pace:       servicepods.NewPace(env.Clock),
		triggers:   util.NewTriggerTimeTracker(),
		topology:   topologycache.NewTopologyCache(),
		preferSame: env.FeatureEnabled(gatePreferSame),
	}
	c.writer = &ownslices.Writer{Client: env.Client.DiscoveryV1(), Tracker: c.tracker, Unsure: c.unsure, Count: metrics.changed}
	c.apply(section)
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{
		Name: "endpoint_slice", Reconcile: c.reconcile, MaxRetries: maxRetries, SlowRetry: lastRetry,
		Limiter: work.NewLimiter[work.ObjectName](firstRetry, lastRetry),
		OnStale: func(apischema.GroupResource) { metrics.syncs.WithLabelValues(resultStale).Inc() },
	})
	c.nodesQueue = work.NewQueue(env.Work, work.Options[string]{
		Name: "endpoint_slice_topology", Reconcile: c.reconcileNodes, FixedWorkers: 1,
	})
	for _, watch := range []struct {
		of interface {
			AddEventHandler(cache.ResourceEventHandler) error
		}
		resource string
		handler  cache.ResourceEventHandler
	}{
		{services, "services", servicepods.ServiceHandler(c.queue)},
		{pods, "pods", servicepods.Handler(c.services, c.podChanged, env.Logger)},
		{nodes, "nodes", c.nodeHandler()},
		{slices, "EndpointSlices", c.sliceHandler()},
	} {
		if err := watch.of.AddEventHandler(watch.handler); err != nil {
			return nil, fmt.Errorf("watch %s: %w", watch.resource, err)
		}
	}
	return &controller.Controller{ApplyLive: c.applyLive}, nil
}

func (c *sliceController) apply(section *schema.EndpointSliceController) {
	c.maxPerSlice.Store(int64(section.MaxEndpointsPerSlice))
	c.batch.Store(int64(section.EndpointUpdatesBatchPeriod.Duration))
}

// applyLive looks at all Services again: how many slices they could do with may have changed.
func (c *sliceController) applyLive(section schema.Section) {
	typed, ok := section.(*schema.EndpointSliceController)
	if !ok {
		return
	}
	resized := c.maxPerSlice.Load() != int64(typed.MaxEndpointsPerSlice)
	c.apply(typed)
	if !resized {
		return
	}
	for _, obj := range c.services.List() {
		if service, ok := obj.(*v1.Service); ok {
			c.queue.AddInitial(cache.MetaObjectToName(service))
		}
	}
}

func (c *sliceController) batchPeriod() time.Duration { return time.Duration(c.batch.Load()) }
