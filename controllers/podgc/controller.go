// Package podgc force-deletes pods that nobody else will finish: those of nodes
// that no longer exist, terminating ones that were never scheduled or whose node
// is out of service, and the oldest finished ones when there are too many. A pod
// whose node is merely not ready, or has been missing for less than its
// quarantine, is left alone.
package podgc

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// interval between the end of a pass and the next one, also of a pass that has failed.
	interval = 20 * time.Second
	// quarantineTime is how long a node must have been missing before its pods are deleted.
	quarantineTime = 40 * time.Second
	// everything is the only key of the queue: all passes see what the ones
	// before have deleted, which is how no finished pod is deleted too many.
	everything = "all pods"
)

var (
	podResource  = v1.SchemeGroupVersion.WithResource("pods")
	nodeResource = v1.SchemeGroupVersion.WithResource("nodes")
)

// Descriptor describes pod-garbage-collector-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.PodGarbageCollectorControllerSection(),
		ServiceAccount: "pod-garbage-collector",
		Requires:       []apischema.GroupVersionResource{podResource, nodeResource},
		LiveFields:     []string{"terminatedPodThreshold"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}},
			{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
		},
		New: controller.NewFor(New),
	}
}

// collector is one life of the controller.
type collector struct {
	client  kubernetes.Interface
	logger  *slog.Logger
	clock   clock.PassiveClock
	pods    cache.Indexer
	nodes   corelisters.NodeLister
	metrics *metrics

	// threshold is schema.PodGarbageCollectorController.TerminatedPodThreshold.
	threshold  atomic.Int64
	quarantine quarantine
	// passed is when the last pass ended, nil before.
	passed atomic.Pointer[time.Time]
}

// New makes the controller.
func New(env controller.Env, section *schema.PodGarbageCollectorController) (*controller.Controller, error) {
	pods, err := env.Informers.Informer(podResource)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	nodes, err := env.Informers.Informer(nodeResource)
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	for _, indexers := range []cache.Indexers{ownerindex.Nodes(), candidates()} {
		if err := pods.AddIndexers(indexers); err != nil {
			return nil, fmt.Errorf("index pods: %w", err)
		}
	}
	metrics, err := registerMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	c := &collector{
		client:  env.Client,
		logger:  env.Logger,
		clock:   env.Clock,
		pods:    pods.Indexer(),
		nodes:   corelisters.NewNodeLister(nodes.Indexer()),
		metrics: metrics,

		quarantine: quarantine{since: map[string]time.Time{}},
	}
	c.threshold.Store(int64(section.TerminatedPodThreshold))
	queue := work.NewQueue(env.Work, work.Options[string]{
		Name: "pod_gc", Reconcile: c.collect,
		Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](interval, interval),
	})
	queue.AddInitial(everything)
	err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			c.quarantine.end(node.Name)
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return &controller.Controller{
		ApplyLive: func(s schema.Section) {
			if section, ok := s.(*schema.PodGarbageCollectorController); ok {
				c.threshold.Store(int64(section.TerminatedPodThreshold))
			}
		},
		Handler: debugHandler{c},
	}, nil
}
