package resourcequota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	countPods           = corev1.ResourceName("count/pods")
	countServices       = corev1.ResourceName("count/services")
	countClaims         = corev1.ResourceName("count/persistentvolumeclaims")
	countResourceClaims = corev1.ResourceName("count/resourceclaims.resource.k8s.io")

	requestsPrefix = corev1.DefaultResourceRequestsPrefix
	// classRequestsPrefix is that of requests for devices of a class, as extended resources (KEP-5004).
	classRequestsPrefix = requestsPrefix + resourceapi.ResourceDeviceClassPrefix
	// Limits of what a class provides are CLASS + one of these.
	storageClassClaims  = ".storageclass.storage.k8s.io/persistentvolumeclaims"
	storageClassStorage = ".storageclass.storage.k8s.io/requests.storage"
	deviceClassDevices  = ".deviceclass.resource.k8s.io/devices"
)

// podNames that every pod may use; there are others, see ofPods.
var podNames = []corev1.ResourceName{
	countPods, corev1.ResourcePods,
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// native names are Kubernetes' own.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// extended names are those of resources that a node, or a device class, adds.
func extended(name corev1.ResourceName) bool {
	return !native(name) && !strings.HasPrefix(string(name), requestsPrefix) &&
		len(validation.IsQualifiedName(requestsPrefix+string(name))) == 0
}

// ofPods tells whether pods can use name.
func ofPods(name corev1.ResourceName) bool {
	return slices.Contains(podNames, name) ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) ||
		ofExtended(name)
}

// ofExtended tells whether name limits requests of extended resources.
func ofExtended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), requestsPrefix) && !native(name) || strings.HasPrefix(string(name), classRequestsPrefix)
}

// matching returns a matcher for evaluators.
func matching(match func(corev1.ResourceName) bool) func([]corev1.ResourceName) []corev1.ResourceName {
	return func(names []corev1.ResourceName) []corev1.ResourceName {
		var matched []corev1.ResourceName
		for _, name := range names {
			if match(name) {
				matched = append(matched, name)
			}
		}
		return matched
	}
}
