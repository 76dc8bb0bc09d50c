// Package replicationcontroller keeps as many pods of a ReplicationController as
// it asks for, with the engine of ReplicaSets.
package replicationcontroller

import (
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// account is also the source of the events. It is not the controller's name.
const account = "replication-controller"

var resource = v1.SchemeGroupVersion.WithResource("replicationcontrollers")

// Descriptor describes replicationcontroller-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.ReplicationControllerControllerSection(),
		ServiceAccount: account,
		EventSource:    account,
		Requires: []apischema.GroupVersionResource{
			resource,
			v1.SchemeGroupVersion.WithResource("pods"),
		},
		ReadsFeatureGates: []string{replicaset.GatePodDeletionCost},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"replicationcontrollers"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"replicationcontrollers/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{""}, Resources: []string{"replicationcontrollers/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// New makes the controller.
func New(env controller.Env, _ *schema.ReplicationControllerController) (*controller.Controller, error) {
	return replicaset.NewEngine(env, kind{env.Client}, replicaset.Options{
		Resource:        resource,
		QueueName:       "replicationmanager",
		PodDeletionCost: env.FeatureEnabled(replicaset.GatePodDeletionCost),
	})
}
