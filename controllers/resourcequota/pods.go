package resourcequota

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcehelper "k8s.io/component-helpers/resource"
)

var (
	pods = corev1.SchemeGroupVersion.WithResource("pods")
	one  = *resource.NewQuantity(1, resource.DecimalSI)
)

func (c *quotaController) podEvaluator(list generic.ListFuncByNamespace) *evaluator {
	return &evaluator{
		resource: pods.GroupResource(),
		list:     list,
		matches:  matching(ofPods),
		inScope:  c.podInScope,
		usage: func(object runtime.Object) (corev1.ResourceList, error) {
			pod, err := as[*corev1.Pod](object)
			if err != nil {
				return nil, err
			}
			return podUsage(pod, c.podLevel, c.clock.Now()), nil
		},
		frees: onUpdate(func(before, after *corev1.Pod) bool { return podFrees(before, after, c.podLevel, c.clock.Now()) }),
		// What a status adds nobody was asked for.
		grows: onUpdate(func(before, after *corev1.Pod) bool { return before.Generation != after.Generation }),
	}
}

// podUsage is what a pod uses now.
func podUsage(pod *corev1.Pod, podLevel bool, now time.Time) corev1.ResourceList {
	used := corev1.ResourceList{countPods: one}
	if !charged(pod, now) {
		return used
	}
	used[corev1.ResourcePods] = one
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true, SkipPodLevelResources: !podLevel}
	for name, quantity := range resourcehelper.PodRequests(pod, options) {
		asRequest := requestsPrefix + name
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name], used[asRequest] = quantity, quantity
		case extended(name), strings.HasPrefix(string(name), resourceapi.ResourceDeviceClassPrefix):
			used[asRequest] = quantity
		}
	}
	for name, quantity := range resourcehelper.PodLimits(pod, options) {
		switch name {
		case corev1.ResourceCPU:
			used[corev1.ResourceLimitsCPU] = quantity
		case corev1.ResourceMemory:
			used[corev1.ResourceLimitsMemory] = quantity
		case corev1.ResourceEphemeralStorage:
			used[corev1.ResourceLimitsEphemeralStorage] = quantity
		}
	}
	return used
}

// charged tells whether a pod uses more than its place among count/pods.
func charged(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	release, ok := releasedAt(pod)
	return !ok || !now.After(release)
}

// releasedAt is when a pod that is being deleted, and does not go, is not
// charged any more. The grace period counts twice, as the deletion's time
// contains it: a node that is late is not overdrawn.
func releasedAt(pod *corev1.Pod) (time.Time, bool) {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second), true
}

// podFrees tells whether an update of a pod changes what some quota counts. Of
// the scopes only those of activeDeadlineSeconds can change.
func podFrees(before, after *corev1.Pod, podLevel bool, now time.Time) bool {
	return terminating(before) != terminating(after) || !quota.Equals(podUsage(before, podLevel, now), podUsage(after, podLevel, now))
}

// deletionBegan tells whether a pod is being deleted, or has another time for it, since before.
func deletionBegan(before, after *corev1.Pod) bool {
	was, wasOK := releasedAt(before)
	is, isOK := releasedAt(after)
	return isOK && (!wasOK || !was.Equal(is))
}

// nextRelease of a pod in a namespace that is being deleted and may not go.
func (c *quotaController) nextRelease(namespace string, now time.Time) (next time.Time) {
	monitor, ok := c.monitors.Get(pods.GroupResource())
	if !ok {
		return next
	}
	stored, err := lister(monitor)(namespace)
	if err != nil {
		return next // there are none yet
	}
	for _, object := range stored {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.DeletionTimestamp == nil || !charged(pod, now) {
			continue
		}
		if at, ok := releasedAt(pod); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
