package replicationcontroller

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
)

// kind is the replicaset.Kind of ReplicationControllers.
type kind struct{ client kubernetes.Interface }

var _ replicaset.Kind[*v1.ReplicationController] = kind{}

// GroupVersionKind implements replicaset.Kind.
func (kind) GroupVersionKind() apischema.GroupVersionKind {
	return v1.SchemeGroupVersion.WithKind("ReplicationController")
}

// Selector implements replicaset.Kind. An empty selector would match all pods
// of the namespace; nobody means that.
func (kind) Selector(rc *v1.ReplicationController) (labels.Selector, error) {
	if len(rc.Spec.Selector) == 0 {
		return labels.Nothing(), nil
	}
	return labels.ValidatedSelectorFromSet(rc.Spec.Selector)
}

// Spec implements replicaset.Kind.
func (kind) Spec(rc *v1.ReplicationController) replicaset.Spec {
	template := rc.Spec.Template
	if template == nil {
		template = &v1.PodTemplateSpec{} // no pod can be made of it
	}
	return replicaset.Spec{
		Replicas:        ptr.Deref(rc.Spec.Replicas, 1),
		MinReadySeconds: rc.Spec.MinReadySeconds,
		Template:        template,
	}
}

// Status implements replicaset.Kind.
func (kind) Status(rc *v1.ReplicationController) replicaset.Status {
	status := replicaset.Status{
		Replicas:           rc.Status.Replicas,
		FullyLabeled:       rc.Status.FullyLabeledReplicas,
		Ready:              rc.Status.ReadyReplicas,
		Available:          rc.Status.AvailableReplicas,
		ObservedGeneration: rc.Status.ObservedGeneration,
	}
	for _, condition := range rc.Status.Conditions {
		if condition.Type == v1.ReplicationControllerReplicaFailure {
			status.Failure = &replicaset.Failure{
				Status:             condition.Status,
				LastTransitionTime: condition.LastTransitionTime,
				Reason:             condition.Reason,
				Message:            condition.Message,
			}
			break
		}
	}
	return status
}

// Get implements replicaset.Kind.
func (k kind) Get(ctx context.Context, namespace, name string) (*v1.ReplicationController, error) {
	return k.client.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
}

// UpdateStatus implements replicaset.Kind.
func (k kind) UpdateStatus(ctx context.Context, rc *v1.ReplicationController, status replicaset.Status) (*v1.ReplicationController, error) {
	return k.client.CoreV1().ReplicationControllers(rc.Namespace).UpdateStatus(ctx, withStatus(rc, status), metav1.UpdateOptions{})
}

// withStatus returns rc with status; it shares everything else with rc.
func withStatus(rc *v1.ReplicationController, status replicaset.Status) *v1.ReplicationController {
	changed := *rc
	changed.Status = v1.ReplicationControllerStatus{
		Replicas:             status.Replicas,
		FullyLabeledReplicas: status.FullyLabeled,
		ReadyReplicas:        status.Ready,
		AvailableReplicas:    status.Available,
		ObservedGeneration:   status.ObservedGeneration,
	}
	for _, condition := range rc.Status.Conditions {
		if condition.Type != v1.ReplicationControllerReplicaFailure {
			changed.Status.Conditions = append(changed.Status.Conditions, condition)
		}
	}
	if failure := status.Failure; failure != nil {
		changed.Status.Conditions = append(changed.Status.Conditions, v1.ReplicationControllerCondition{
			Type:               v1.ReplicationControllerReplicaFailure,
			Status:             failure.Status,
			LastTransitionTime: failure.LastTransitionTime,
			Reason:             failure.Reason,
			Message:            failure.Message,
		})
	}
	return &changed
}
