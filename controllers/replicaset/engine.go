package replicaset

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// maxRetries is how often a failing object is tried with back-off, about three
// minutes in all; after that it is tried every five minutes, so that one whose
// obstacle is gone recovers in a time that people wait for.
const maxRetries = 15

// Options of an engine. Resource and QueueName are required.
type Options struct {
	// Resource of the objects.
	Resource apischema.GroupVersionResource
	// QueueName is the name label of the workqueue_* metrics.
	QueueName string
	// PodDeletionCost heeds the annotation controller.kubernetes.io/pod-deletion-cost.
	PodDeletionCost bool
	// CountTerminating reports Status.Terminating.
	CountTerminating bool
	// CountStale counts reconciles that wait for a cache, in
	// replicaset_controller_stale_sync_skips_total.
	CountStale bool
}

// engine keeps the pods of all objects of one Kind.
type engine[T Object] struct {
	kind    Kind[T]
	options Options
	objects cache.Indexer
	pods    cache.Indexer
	control podcontrol.Control
	clock   clock.PassiveClock
	logger  *slog.Logger
	metrics *metrics
	doomed  *podcontrol.Doomed
	held    *holdback.Book
	unsure  *unsettled.Keys
	queue   *work.Queue[work.ObjectName]
	// terminatingDropped is set when the API server does not know the field.
	terminatingDropped atomic.Bool
}

// NewEngine makes a controller of the objects of kind.
func NewEngine[T Object](env controller.Env, kind Kind[T], o Options) (*controller.Controller, error) {
	objects, err := env.Informers.Informer(o.Resource)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", o.Resource.Resource, err)
	}
	pods, err := env.Informers.Informer(v1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, fmt.Errorf("lease pods: %w", err)
	}
	for _, indexers := range []cache.Indexers{ownerindex.Controllers(), ownerindex.Selectors(kind.Selector)} {
		if err := objects.AddIndexers(indexers); err != nil {
			return nil, fmt.Errorf("index %s: %w", o.Resource.Resource, err)
		}
	}
	if err := pods.AddIndexers(ownerindex.Controllers()); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	e := &engine[T]{
		kind:    kind,
		options: o,
		objects: objects.Indexer(),
		pods:    pods.Indexer(),
		control: podcontrol.Control{Client: env.Client, Events: env.Events},
		clock:   env.Clock,
		logger:  env.Logger,
		doomed:  podcontrol.NewDoomed(),
		held:    holdback.NewBook(),
		unsure:  unsettled.New(env.Informers.CatchUp, env.Clock),
	}
	if e.metrics, err = newMetrics(env.Metrics); err != nil {
		return nil, err
	}
	queue := work.Options[work.ObjectName]{Name: o.QueueName, Reconcile: e.reconcile, MaxRetries: maxRetries}
	if o.CountStale {
		queue.OnStale = e.metrics.stale
	}
	e.queue = work.NewQueue(env.Work, queue)
	if err := objects.AddEventHandler(e.objectHandler()); err != nil {
		return nil, fmt.Errorf("watch %s: %w", o.Resource.Resource, err)
	}
	if err := pods.AddEventHandler(e.podHandler()); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return &controller.Controller{}, nil
}
