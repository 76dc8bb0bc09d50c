package resourcequota_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// A resize that its node cannot carry out is given back without a recount, and
// so is the rest of one that has made a pod smaller.
func resize(w *world) {
	w.quota("q", amounts{"requests.cpu": "10"})
	pods := w.client.CoreV1().Pods(w.ns)
	cpu := func(quantity string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: amounts{"cpu": quantity}.list()}
	}
	// Admission wants to know the node.
	nodes, size := w.client.CoreV1().Nodes(), amounts{"cpu": "9", "memory": "9Gi", "pods": "9"}.list()
	_, err := nodes.Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Status: corev1.NodeStatus{Capacity: size, Allocatable: size},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), w.ns, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
	pod := w.pod("p", requesting(amounts{"cpu": "2"}), func(p *corev1.Pod) { p.Spec.NodeName = w.ns })
	decide := func(given string, conditions ...corev1.PodCondition) {
		w.t.Helper()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = conditions
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", Image: "example.com/app:1", AllocatedResources: amounts{"cpu": given}.list(), Resources: cpu(given),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}, Started: ptr.To(true), Ready: true,
		}}
		var err error
		if pod, err = pods.UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	resize := func(to string) {
		w.t.Helper()
		pod.Spec.Containers[0].Resources = *cpu(to)
		harness.Eventually(w.t, soon, "resize to "+to, func(ctx context.Context) error {
			resized, err := pods.UpdateResize(ctx, pod.Name, pod, metav1.UpdateOptions{})
			if err == nil {
				pod = resized
			}
			return err
		})
	}
	decide("2")
	w.used("q", amounts{"requests.cpu": "2"})
	resize("5")
	w.used("q", amounts{"requests.cpu": "5"})
	decide("2", corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible})
	w.used("q", amounts{"requests.cpu": "2"})
	resize("1")
	decide("1")
	w.used("q", amounts{"requests.cpu": "1"})
}

// What a pod has as a whole is counted when it changes.
func podAsAWhole(w *world) {
	w.quota("q", amounts{"requests.cpu": "10"})
	whole := func(quantity string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts{"cpu": quantity}.list()}
		}
	}
	pod := w.pod("p", requesting(amounts{"cpu": "1"}), whole("4"))
	w.used("q", amounts{"requests.cpu": "4"})
	whole("2")(pod)
	if _, err := w.client.CoreV1().Pods(w.ns).UpdateResize(w.t.Context(), pod.Name, pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{"requests.cpu": "2"})
	w.deletePod("p")
	w.used("q", amounts{"requests.cpu": "0"})
}
