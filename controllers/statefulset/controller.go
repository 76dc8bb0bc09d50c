// Package statefulset runs the pods of StatefulSets: one per ordinal, with a
// name, a hostname and claims of its own, made and removed in order, and
// replaced from the highest ordinal down when the template changes.
package statefulset

import (
	"fmt"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

const (
	statefulSetKind = "StatefulSet"
	podKind         = "Pod"

	// maxRetries is how often a failing StatefulSet is tried with back-off, about
	// three minutes in all. After that it is tried at the slow pace of the queue.
	maxRetries = 15

	// gateMaxUnavailable heeds spec.updateStrategy.rollingUpdate.maxUnavailable (KEP-961).
	gateMaxUnavailable = "MaxUnavailableStatefulSet"
	// gateRecreate allows the update strategy Recreate.
	gateRecreate = "StatefulSetRecreateStrategy"
	// gateSemanticRevisions takes a revision that is encoded otherwise for the
	// same template.
	gateSemanticRevisions = "StatefulSetSemanticRevisionComparison"
)

var (
	statefulSetResource = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	revisionResource    = appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	podResource         = v1.SchemeGroupVersion.WithResource("pods")
	claimResource       = v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")

	// controllerKind is the kind in the owner references of pods, claims and revisions.
	controllerKind = appsv1.SchemeGroupVersion.WithKind(statefulSetKind)
)

// Descriptor describes statefulset-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:           schema.StatefulSetControllerSection(),
		ServiceAccount:    "statefulset-controller",
		Requires:          []apischema.GroupVersionResource{statefulSetResource, revisionResource, podResource, claimResource},
		ReadsFeatureGates: []string{gateMaxUnavailable, gateRecreate, gateSemanticRevisions},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{"apps"}, Resources: []string{"controllerrevisions"},
				Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"pods"},
				Verbs: []string{"list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"pods/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"},
				Verbs: []string{"list", "watch", "create", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// statefulSetController reconciles StatefulSets.
type statefulSetController struct {
	client  kubernetes.Interface
	events  record.EventRecorder
	logger  *slog.Logger
	clock   clock.PassiveClock
	metrics *metrics
	unsure  *unsettled.Keys
	held    *holdback.Book
	doomed  *podcontrol.Doomed

	sets      cache.Indexer
	pods      cache.Indexer
	claims    cache.Indexer
	revisions cache.Indexer
	queue     *work.Queue[work.ObjectName]

	// Feature gates.
	maxUnavailable, recreate, semanticRevisions bool
}

// New makes the controller.
func New(env controller.Env, _ *schema.StatefulSetController) (*controller.Controller, error) {
	leased := map[apischema.GroupVersionResource]*informers.Informer{}
	for _, resource := range []apischema.GroupVersionResource{statefulSetResource, revisionResource, podResource, claimResource} {
		informer, err := env.Informers.Informer(resource)
		if err != nil {
			return nil, fmt.Errorf("lease %s: %w", resource.Resource, err)
		}
		leased[resource] = informer
	}
	for resource, indexers := range map[apischema.GroupVersionResource]cache.Indexers{
		statefulSetResource: ownerindex.Selectors(selectorOf),
		podResource:         ownerindex.Controllers(),
		revisionResource:    ownerindex.Controllers(),
	} {
		if err := leased[resource].AddIndexers(indexers); err != nil {
			return nil, fmt.Errorf("index %s: %w", resource.Resource, err)
		}
	}
	metrics, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	c := &statefulSetController{
		client:  env.Client,
		events:  env.Events,
		logger:  env.Logger,
		clock:   env.Clock,
		metrics: metrics,
		unsure:  unsettled.New(env.Informers.CatchUp, env.Clock),
		held:    holdback.NewBook(),
		doomed:  podcontrol.NewDoomed(),

		sets:      leased[statefulSetResource].Indexer(),
		pods:      leased[podResource].Indexer(),
		claims:    leased[claimResource].Indexer(),
		revisions: leased[revisionResource].Indexer(),

		maxUnavailable:    env.FeatureEnabled(gateMaxUnavailable),
		recreate:          env.FeatureEnabled(gateRecreate),
		semanticRevisions: env.FeatureEnabled(gateSemanticRevisions),
	}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{
		Name: "statefulset", Reconcile: c.reconcile, MaxRetries: maxRetries, OnStale: metrics.stale,
	})
	for resource, handler := range map[apischema.GroupVersionResource]cache.ResourceEventHandler{
		statefulSetResource: c.setHandler(),
		podResource:         c.podHandler(),
		claimResource:       c.claimHandler(),
	} {
		if err := leased[resource].AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource.Resource, err)
		}
	}
	return &controller.Controller{}, nil
}

// selectorOf is the set's selector. The API server refuses one that is empty.
func selectorOf(set *appsv1.StatefulSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(set.Spec.Selector)
}
