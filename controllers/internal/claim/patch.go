package claim

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// PatchPod returns Claims.Patch for pods.
func PatchPod(client kubernetes.Interface) func(context.Context, *v1.Pod, []byte) (*v1.Pod, error) {
	return func(ctx context.Context, pod *v1.Pod, patch []byte) (*v1.Pod, error) {
		return client.CoreV1().Pods(pod.Namespace).
			Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
}

// PatchReplicaSet returns Claims.Patch for ReplicaSets.
func PatchReplicaSet(client kubernetes.Interface) func(context.Context, *appsv1.ReplicaSet, []byte) (*appsv1.ReplicaSet, error) {
	return func(ctx context.Context, rs *appsv1.ReplicaSet, patch []byte) (*appsv1.ReplicaSet, error) {
		return client.AppsV1().ReplicaSets(rs.Namespace).
			Patch(ctx, rs.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
}

// PatchControllerRevision returns Claims.Patch for ControllerRevisions.
func PatchControllerRevision(
	client kubernetes.Interface,
) func(context.Context, *appsv1.ControllerRevision, []byte) (*appsv1.ControllerRevision, error) {
	return func(ctx context.Context, revision *appsv1.ControllerRevision, patch []byte) (*appsv1.ControllerRevision, error) {
		return client.AppsV1().ControllerRevisions(revision.Namespace).
			Patch(ctx, revision.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
}
