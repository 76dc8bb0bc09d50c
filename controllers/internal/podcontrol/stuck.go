package podcontrol

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// deletionTime is ample for both steps of a deletion.
const deletionTime = 5 * time.Second

// DeletionStuck tells whether the deletion of pod came to a halt, so that it
// has to be requested again, and if not, after what time that is to be asked
// once more; 0 if it cannot happen.
//
// The API server deletes a pod that is not bound to a node in two steps: it
// stores a deletionTimestamp with a grace period of 0, and then removes the
// pod. A request that is cut off between them leaves a pod that no kubelet will
// ever finish, and that another request removes.
func DeletionStuck(pod *v1.Pod, now time.Time) (stuck bool, checkIn time.Duration) {
	if pod.DeletionTimestamp == nil || pod.Spec.NodeName != "" || len(pod.Finalizers) > 0 ||
		pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds > 0 {
		return false, 0
	}
	if left := pod.DeletionTimestamp.Add(deletionTime).Sub(now); left > 0 {
		return false, left
	}
	return true, 0
}
