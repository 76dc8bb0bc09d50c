package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// replicaSets is the Kind of apps/v1 ReplicaSets.
type replicaSets struct{ client kubernetes.Interface }

var _ Kind[*appsv1.ReplicaSet] = replicaSets{}

// GroupVersionKind implements Kind.
func (replicaSets) GroupVersionKind() apischema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
}

// Selector implements Kind.
func (replicaSets) Selector(rs *appsv1.ReplicaSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(rs.Spec.Selector)
}

// Spec implements Kind.
func (replicaSets) Spec(rs *appsv1.ReplicaSet) Spec {
	return Spec{
		Replicas:        ptr.Deref(rs.Spec.Replicas, 1),
		MinReadySeconds: rs.Spec.MinReadySeconds,
		Template:        &rs.Spec.Template,
	}
}

// Status implements Kind.
func (replicaSets) Status(rs *appsv1.ReplicaSet) Status {
	status := Status{
		Replicas:           rs.Status.Replicas,
		FullyLabeled:       rs.Status.FullyLabeledReplicas,
		Ready:              rs.Status.ReadyReplicas,
		Available:          rs.Status.AvailableReplicas,
		Terminating:        rs.Status.TerminatingReplicas,
		ObservedGeneration: rs.Status.ObservedGeneration,
	}
	for _, condition := range rs.Status.Conditions {
		if condition.Type == appsv1.ReplicaSetReplicaFailure {
			status.Failure = &Failure{
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

// Get implements Kind.
func (k replicaSets) Get(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return k.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// UpdateStatus implements Kind.
func (k replicaSets) UpdateStatus(ctx context.Context, rs *appsv1.ReplicaSet, status Status) (*appsv1.ReplicaSet, error) {
	// Only the status is copied deeply, as nothing else is changed.
	changed := *rs
	changed.Status = appsv1.ReplicaSetStatus{
		Replicas:             status.Replicas,
		FullyLabeledReplicas: status.FullyLabeled,
		ReadyReplicas:        status.Ready,
		AvailableReplicas:    status.Available,
		TerminatingReplicas:  status.Terminating,
		ObservedGeneration:   status.ObservedGeneration,
	}
	for _, condition := range rs.Status.Conditions {
		if condition.Type != appsv1.ReplicaSetReplicaFailure {
			changed.Status.Conditions = append(changed.Status.Conditions, condition)
		}
	}
	if failure := status.Failure; failure != nil {
		changed.Status.Conditions = append(changed.Status.Conditions, appsv1.ReplicaSetCondition{
			Type:               appsv1.ReplicaSetReplicaFailure,
			Status:             failure.Status,
			LastTransitionTime: failure.LastTransitionTime,
			Reason:             failure.Reason,
			Message:            failure.Message,
		})
	}
	return k.client.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
}
