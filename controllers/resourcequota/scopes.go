package resourcequota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// selects tells whether a scope's requirement selects an object whose value
// for that scope is value; empty for none.
func selects(r corev1.ScopedResourceSelectorRequirement, value string) bool {
	switch r.Operator {
	case corev1.ScopeSelectorOpExists:
		return value != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return value == ""
	case corev1.ScopeSelectorOpIn:
		return value != "" && slices.Contains(r.Values, value)
	case corev1.ScopeSelectorOpNotIn:
		return value == "" || !slices.Contains(r.Values, value)
	}
	return false
}

// podInScope is a generic.MatchesScopeFunc.
func (c *quotaController) podInScope(r corev1.ScopedResourceSelectorRequirement, object runtime.Object) (bool, error) {
	pod, err := as[*corev1.Pod](object)
	if err != nil {
		return false, err
	}
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod, c.podLevel), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod, c.podLevel), nil
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(r, pod.Spec.PriorityClassName), nil
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod.Spec.Affinity), nil
	}
	return false, nil
}

// claimInScope is a generic.MatchesScopeFunc.
func claimInScope(r corev1.ScopedResourceSelectorRequirement, object runtime.Object) (bool, error) {
	claim, err := as[*corev1.PersistentVolumeClaim](object)
	if err != nil {
		return false, err
	}
	if r.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	classes := attributesClasses(claim)
	if len(classes) == 0 {
		return selects(r, ""), nil
	}
	return slices.ContainsFunc(classes, func(class string) bool { return selects(r, class) }), nil
}

// terminating pods end by themselves.
func terminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

// crossesNamespaces tells whether a term of the affinity may look at other namespaces.
func crossesNamespaces(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	crosses := func(term *corev1.PodAffinityTerm) bool {
		return len(term.Namespaces) > 0 || term.NamespaceSelector != nil
	}
	some := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) bool {
		for i := range required {
			if crosses(&required[i]) {
				return true
			}
		}
		for i := range preferred {
			if crosses(&preferred[i].PodAffinityTerm) {
				return true
			}
		}
		return false
	}
	if a := affinity.PodAffinity; a != nil &&
		some(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution) {
		return true
	}
	a := affinity.PodAntiAffinity
	return a != nil && some(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
}
