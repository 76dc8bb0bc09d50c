// Package deployment keeps a ReplicaSet per pod template of a Deployment and
// moves replicas from the old ones to the one of the current template.
package deployment

import (
	"fmt"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	deploymentKind = "Deployment"
	replicaSetKind = "ReplicaSet"

	// maxRetries is how often a failing Deployment is tried with back-off, about
	// three minutes in all. After that it is tried at the slow pace of the queue.
	maxRetries = 15

	gateTerminatingReplicas = "DeploymentReplicaSetTerminatingReplicas"
)

// controllerKind is the kind in the owner references of ReplicaSets.
var controllerKind = appsv1.SchemeGroupVersion.WithKind(deploymentKind)

// Descriptor describes deployment-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.DeploymentControllerSection(),
		ServiceAccount: "deployment-controller",
		Requires: []apischema.GroupVersionResource{
			appsv1.SchemeGroupVersion.WithResource("deployments"),
			appsv1.SchemeGroupVersion.WithResource("replicasets"),
			corev1.SchemeGroupVersion.WithResource("pods"),
		},
		ReadsFeatureGates: []string{gateTerminatingReplicas},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch", "update"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{"apps"}, Resources: []string{"replicasets"},
				Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// deploymentController reconciles Deployments.
type deploymentController struct {
	client kubernetes.Interface
	events record.EventRecorder
	log    *slog.Logger
	clock  clock.PassiveClock
	pace   *pacer

	deployments cache.Indexer
	replicaSets cache.Indexer
	pods        cache.Indexer
	queue       *work.Queue[work.ObjectName]

	// terminatingReplicas reports status.terminatingReplicas.
	terminatingReplicas bool
}

// New makes the controller.
func New(env controller.Env, _ *schema.DeploymentController) (*controller.Controller, error) {
	deployments, err := env.Informers.Informer(appsv1.SchemeGroupVersion.WithResource("deployments"))
	if err != nil {
		return nil, fmt.Errorf("lease deployments: %w", err)
	}
	replicaSets, err := env.Informers.Informer(appsv1.SchemeGroupVersion.WithResource("replicasets"))
	if err != nil {
		return nil, fmt.Errorf("lease replicasets: %w", err)
	}
	pods, err := env.Informers.Informer(corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, fmt.Errorf("lease pods: %w", err)
	}
	if err := deployments.AddIndexers(ownerindex.Selectors(selectorOf)); err != nil {
		return nil, fmt.Errorf("index deployments: %w", err)
	}
	if err := replicaSets.AddIndexers(ownerindex.Controllers()); err != nil {
		return nil, fmt.Errorf("index replicasets: %w", err)
	}
	if err := pods.AddIndexers(ownerindex.Controllers()); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	c := &deploymentController{
		client:              env.Client,
		events:              env.Events,
		log:                 env.Logger,
		clock:               env.Clock,
		pace:                newPacer(),
		deployments:         deployments.Indexer(),
		replicaSets:         replicaSets.Indexer(),
		pods:                pods.Indexer(),
		terminatingReplicas: env.FeatureEnabled(gateTerminatingReplicas),
	}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{
		Name: "deployment", Reconcile: c.reconcile, MaxRetries: maxRetries,
	})
	for _, add := range []func() error{
		func() error { return deployments.AddEventHandler(c.deploymentHandler()) },
		func() error { return replicaSets.AddEventHandler(c.replicaSetHandler()) },
		func() error { return pods.AddEventHandler(c.podHandler()) },
	} {
		if err := add(); err != nil {
			return nil, fmt.Errorf("add event handler: %w", err)
		}
	}
	return &controller.Controller{}, nil
}

// selectorOf is the Deployment's selector; one without requirements selects nothing here.
func selectorOf(d *appsv1.Deployment) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(d.Spec.Selector)
}
