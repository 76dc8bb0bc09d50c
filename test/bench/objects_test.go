package bench

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// create makes a Deployment, whose pods a simulated node runs at once.
func create(b *testing.B, client kubernetes.Interface, namespace, name string, replicas int32) {
	b.Helper()
	labels := map[string]string{"app": name}
	_, err := client.AppsV1().Deployments(namespace).Create(b.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
}

// awaitAvailable waits until every Deployment of the namespace has all its replicas.
func awaitAvailable(b *testing.B, client kubernetes.Interface, namespace string, replicas int32) {
	b.Helper()
	within(b, 10*time.Minute, 100*time.Millisecond, "all Deployments available", func(ctx context.Context) (bool, error) {
		list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			s := &list.Items[i].Status
			if s.AvailableReplicas != replicas || s.UpdatedReplicas != replicas || s.Replicas != replicas {
				return false, nil
			}
		}
		return len(list.Items) > 0, nil
	})
}

// watchReplicaSet begins to watch and returns a function that waits for the
// Deployment's ReplicaSet and returns when it was seen.
func watchReplicaSet(b *testing.B, client kubernetes.Interface, namespace, deployment string) (seen func() time.Time) {
	b.Helper()
	w, err := client.AppsV1().ReplicaSets(namespace).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return func() time.Time {
		b.Helper()
		defer w.Stop()
		timeout := time.After(2 * time.Minute)
		for {
			select {
			case e, ok := <-w.ResultChan():
				now := time.Now()
				if !ok {
					b.Fatal("the watch of ReplicaSets ended")
				}
				rs, ok := e.Object.(*appsv1.ReplicaSet)
				if !ok {
					b.Fatalf("the watch of ReplicaSets sent %T", e.Object)
				}
				if owner := metav1.GetControllerOf(rs); owner != nil && owner.Name == deployment {
					return now
				}
			case <-timeout:
				b.Fatalf("no ReplicaSet of %s within 2 minutes", deployment)
			}
		}
	}
}

// awaitReconciling waits until the program leads and works.
func awaitReconciling(b *testing.B, client kubernetes.Interface, namespace, name string) {
	b.Helper()
	seen := watchReplicaSet(b, client, namespace, name)
	create(b, client, namespace, name, 0)
	seen()
}
