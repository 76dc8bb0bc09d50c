// Package availability tells what state a pod is in, as far as controllers
// that keep a number of pods are concerned, and when that state will change
// by the mere passing of time.
package availability

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// IsTerminal tells whether all containers of the pod have ended for good.
func IsTerminal(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// IsActive tells whether the pod counts for its owner: neither finished nor
// being deleted.
func IsActive(pod *v1.Pod) bool {
	return !IsTerminal(pod) && pod.DeletionTimestamp == nil
}

// IsTerminating tells whether the pod is being deleted while its containers
// may still run. A finished pod that a finalizer holds is not terminating.
func IsTerminating(pod *v1.Pod) bool {
	return !IsTerminal(pod) && pod.DeletionTimestamp != nil
}

// Active returns the active ones of pods.
func Active(pods []*v1.Pod) []*v1.Pod { return filter(pods, IsActive) }

// Terminating returns the terminating ones of pods.
func Terminating(pods []*v1.Pod) []*v1.Pod { return filter(pods, IsTerminating) }

func filter(pods []*v1.Pod, keep func(*v1.Pod) bool) []*v1.Pod {
	kept := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		if keep(pod) {
			kept = append(kept, pod)
		}
	}
	return kept
}

// ReadyCondition returns the pod's first condition of type Ready, or nil.
func ReadyCondition(pod *v1.Pod) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == v1.PodReady {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady tells whether the pod's Ready condition is true, whatever its phase.
func IsReady(pod *v1.Pod) bool {
	ready := ReadyCondition(pod)
	return ready != nil && ready.Status == v1.ConditionTrue
}

// IsAvailable tells whether the pod has been ready for minReadySeconds at now,
// the very instant at which they have passed included.
func IsAvailable(pod *v1.Pod, minReadySeconds int32, now time.Time) bool {
	ready := ReadyCondition(pod)
	if ready == nil || ready.Status != v1.ConditionTrue {
		return false
	}
	if minReadySeconds == 0 {
		return true
	}
	since := ready.LastTransitionTime
	return !since.IsZero() && !since.Add(seconds(minReadySeconds)).After(now)
}

// Until returns how long after now the pod becomes available if it stays
// ready, and false if no passing of time makes it so: it is not ready, is
// available already, or does not say since when it is ready.
func Until(pod *v1.Pod, minReadySeconds int32, now time.Time) (time.Duration, bool) {
	ready := ReadyCondition(pod)
	if ready == nil || ready.Status != v1.ConditionTrue || minReadySeconds <= 0 || ready.LastTransitionTime.IsZero() {
		return 0, false
	}
	left := ready.LastTransitionTime.Add(seconds(minReadySeconds)).Sub(now)
	return left, left > 0
}

// NextCheck returns how long from the present the next one of pods becomes
// available, and false if none will. now is the instant at which availability
// was last judged: a pod whose time has come between then and the present is
// answered with 0, so that it is not forgotten.
func NextCheck(pods []*v1.Pod, minReadySeconds int32, now time.Time, present clock.PassiveClock) (time.Duration, bool) {
	var next time.Duration
	found := false
	for _, pod := range pods {
		if left, ok := Until(pod, minReadySeconds, now); ok && (!found || left < next) {
			next, found = left, true
		}
	}
	if !found {
		return 0, false
	}
	return max(0, next-present.Since(now)), true
}

func seconds(s int32) time.Duration { return time.Duration(s) * time.Second }
