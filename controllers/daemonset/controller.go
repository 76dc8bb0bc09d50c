// Package daemonset keeps one pod of a DaemonSet's template on every node that
// fits it, as nodes come, change and go, and rolls changed templates out.
package daemonset

import (
	"context"
	"fmt"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// maxRetries is how often a failing DaemonSet is tried with back-off, about
// three minutes in all; after that it is tried every five minutes.
const maxRetries = 15

// gateNumericTolerations lets tolerations compare numbers.
const gateNumericTolerations = "TaintTolerationComparisonOperators"

const kind = "DaemonSet"

// controllerKind is the kind in the owner references of pods and revisions.
var controllerKind = appsv1.SchemeGroupVersion.WithKind(kind)

var (
	daemonSetResource = appsv1.SchemeGroupVersion.WithResource("daemonsets")
	revisionResource  = appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	podResource       = v1.SchemeGroupVersion.WithResource("pods")
	nodeResource      = v1.SchemeGroupVersion.WithResource("nodes")
)

// Descriptor describes daemonset-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:           schema.DaemonSetControllerSection(),
		ServiceAccount:    "daemon-set-controller",
		Requires:          []apischema.GroupVersionResource{daemonSetResource, revisionResource, podResource, nodeResource},
		ReadsFeatureGates: []string{gateNumericTolerations},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"daemonsets/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"apps"}, Resources: []string{"daemonsets/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch", "create", "delete", "patch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"controllerrevisions"},
				Verbs: []string{"get", "list", "watch", "create", "delete", "update", "patch"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// daemonSetController reconciles DaemonSets.
type daemonSetController struct {
	client   kubernetes.Interface
	control  podcontrol.Control
	events   record.EventRecorder
	logger   *slog.Logger
	clock    clock.WithTicker
	metrics  *metrics
	failures *failures
	unsure   *unsettled.Keys
	doomed   *podcontrol.Doomed
	held     *holdback.Book

	daemonSets cache.Indexer
	revisions  cache.Indexer
	pods       cache.Indexer
	nodes      cache.Indexer

	queue     *work.Queue[work.ObjectName]
	nodeQueue *work.Queue[string]
	changed   *changedNodes

	numericTolerations bool
}

// New makes the controller.
func New(env controller.Env, _ *schema.DaemonSetController) (*controller.Controller, error) {
	c := &daemonSetController{
		client:             env.Client,
		control:            podcontrol.Control{Client: env.Client, Events: env.Events},
		events:             env.Events,
		logger:             env.Logger,
		clock:              env.Clock,
		failures:           newFailures(env.Clock),
		unsure:             unsettled.New(env.Informers.CatchUp, env.Clock),
		doomed:             podcontrol.NewDoomed(),
		held:               holdback.NewBook(),
		changed:            newChangedNodes(),
		numericTolerations: env.FeatureEnabled(gateNumericTolerations),
	}
	var err error
	if c.metrics, err = newMetrics(env.Metrics); err != nil {
		return nil, err
	}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{
		Name: "daemonset", Reconcile: c.reconcile, MaxRetries: maxRetries, OnStale: c.metrics.stale,
	})
	c.nodeQueue = work.NewQueue(env.Work, work.Options[string]{Name: "daemonset-node-updates", Reconcile: c.reconcileNode})
	if err := c.watch(env.Informers); err != nil {
		return nil, err
	}
	return &controller.Controller{Runners: []func(context.Context) error{c.failures.run}}, nil
}

// watch leases the informers, with the indexes that keep every look-up short.
func (c *daemonSetController) watch(lease *informers.Lease) error {
	for _, watched := range []struct {
		resource apischema.GroupVersionResource
		indexes  []cache.Indexers
		store    *cache.Indexer
		handler  func() cache.ResourceEventHandler
	}{
		{daemonSetResource, []cache.Indexers{ownerindex.Selectors(selectorOf)}, &c.daemonSets, c.daemonSetHandler},
		{revisionResource, []cache.Indexers{ownerindex.Controllers()}, &c.revisions, c.revisionHandler},
		{podResource, []cache.Indexers{ownerindex.Controllers(), ownerindex.Nodes()}, &c.pods, c.podHandler},
		{nodeResource, nil, &c.nodes, c.nodeHandler},
	} {
		informer, err := lease.Informer(watched.resource)
		if err != nil {
			return fmt.Errorf("lease %s: %w", watched.resource.Resource, err)
		}
		for _, indexers := range watched.indexes {
			if err := informer.AddIndexers(indexers); err != nil {
				return fmt.Errorf("index %s: %w", watched.resource.Resource, err)
			}
		}
		*watched.store = informer.Indexer()
		if err := informer.AddEventHandler(watched.handler()); err != nil {
			return fmt.Errorf("watch %s: %w", watched.resource.Resource, err)
		}
	}
	return nil
}
