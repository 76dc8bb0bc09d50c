package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// bestEffort tells whether the pod's QoS class is BestEffort: nothing in it
// asks for, or is limited in, cpu or memory. Resources of the pod as a whole
// decide alone where they count.
func bestEffort(pod *corev1.Pod, podLevel bool) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	if podLevel && resourcehelper.IsPodLevelResourcesSet(pod) {
		return !asks(pod.Spec.Resources)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if asks(&containers[i].Resources) {
				return false
			}
		}
	}
	return true
}

func asks(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if !list.Cpu().IsZero() || !list.Memory().IsZero() {
			return true
		}
	}
	return false
}
