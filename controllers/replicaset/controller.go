// Package replicaset keeps as many pods of a ReplicaSet as it asks for: it
// creates missing ones from the template, deletes surplus ones, the least
// useful first, adopts matching orphans and releases pods that no longer match.
// The engine works on any Kind of object that keeps a number of like pods.
package replicaset

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// GatePodDeletionCost lets pods say how much they would be missed.
	GatePodDeletionCost = "PodDeletionCost"
	// gateTerminatingReplicas counts terminating pods in the status.
	gateTerminatingReplicas = "DeploymentReplicaSetTerminatingReplicas"
)

// Descriptor describes replicaset-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.ReplicaSetControllerSection(),
		ServiceAccount: "replicaset-controller",
		Requires: []apischema.GroupVersionResource{
			appsv1.SchemeGroupVersion.WithResource("replicasets"),
			v1.SchemeGroupVersion.WithResource("pods"),
		},
		ReadsFeatureGates: []string{GatePodDeletionCost, gateTerminatingReplicas},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"replicasets/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"apps"}, Resources: []string{"replicasets/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// New makes the controller.
func New(env controller.Env, _ *schema.ReplicaSetController) (*controller.Controller, error) {
	return NewEngine(env, replicaSets{env.Client}, Options{
		Resource:         appsv1.SchemeGroupVersion.WithResource("replicasets"),
		QueueName:        "replicaset",
		PodDeletionCost:  env.FeatureEnabled(GatePodDeletionCost),
		CountTerminating: env.FeatureEnabled(gateTerminatingReplicas),
		CountStale:       true,
	})
}
