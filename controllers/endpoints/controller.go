// Package endpoints keeps, for each Service that has a selector, the Endpoints
// of the same name: the addresses of its pods by port, ready and not ready.
// EndpointSlices are what new software reads; Endpoints are deprecated, and
// kept for what does not.
package endpoints

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice/util"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// maxRetries is how often a failing Service is tried with back-off, about three
// minutes in all; after that it is tried every five minutes.
const maxRetries = 15

// Descriptor describes endpoints-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.EndpointsControllerSection(),
		ServiceAccount: "endpoint-controller",
		EventSource:    "endpoint-controller",
		Requires: []apischema.GroupVersionResource{
			v1.SchemeGroupVersion.WithResource("pods"),
			v1.SchemeGroupVersion.WithResource("services"),
			v1.SchemeGroupVersion.WithResource("endpoints"),
		},
		LiveFields: []string{"endpointUpdatesBatchPeriod"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services", "pods"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"endpoints"},
				Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"endpoints/restricted"}, Verbs: []string{"create"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// endpointsController reconciles Services, by namespace and name.
type endpointsController struct {
	client    kubernetes.Interface
	services  cache.Indexer
	pods      cache.Indexer
	endpoints cache.Indexer
	events    record.EventRecorder
	logger    *slog.Logger
	triggers  *util.TriggerTimeTracker
	unsure    *unsettled.Keys
	pace      *servicepods.Pace
	departed  departed
	batch     atomic.Int64
	queue     *work.Queue[work.ObjectName]
}

// New makes the controller.
func New(env controller.Env, section *schema.EndpointsController) (*controller.Controller, error) {
	services, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("services"))
	if err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	pods, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	endpoints, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("endpoints"))
	if err != nil {
		return nil, fmt.Errorf("watch endpoints: %w", err)
	}
	if err := services.AddIndexers(servicepods.ServiceIndexers()); err != nil {
		return nil, fmt.Errorf("index services: %w", err)
	}
	if err := pods.AddIndexers(servicepods.PodIndexers()); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	c := &endpointsController{
		client:    env.Client,
		services:  services.Indexer(),
		pods:      pods.Indexer(),
		endpoints: endpoints.Indexer(),
		events:    env.Events,
		logger:    env.Logger,
		triggers:  util.NewTriggerTimeTracker(),
		unsure:    unsettled.New(env.Informers.CatchUp, env.Clock),
		pace:      servicepods.NewPace(env.Clock),
	}
	c.apply(section)
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{
		Name: "endpoint", Reconcile: c.reconcile, MaxRetries: maxRetries,
	})
	if err := services.AddEventHandler(c.serviceHandler()); err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	if err := pods.AddEventHandler(servicepods.Handler(c.services, c.podChanged, env.Logger)); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if err := endpoints.AddEventHandler(c.endpointsHandler()); err != nil {
		return nil, fmt.Errorf("watch endpoints: %w", err)
	}
	return &controller.Controller{ApplyLive: func(s schema.Section) {
		if typed, ok := s.(*schema.EndpointsController); ok {
			c.apply(typed)
		}
	}}, nil
}

func (c *endpointsController) apply(section *schema.EndpointsController) {
	c.batch.Store(int64(section.EndpointUpdatesBatchPeriod.Duration))
}

func (c *endpointsController) batchPeriod() time.Duration { return time.Duration(c.batch.Load()) }
