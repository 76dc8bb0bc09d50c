// Package podstatus changes the status of pods that exist already.
package podstatus

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

// Patch sends what change does to the status of pod, and nothing when it does
// nothing. It never reaches another pod of the same name: the API server
// refuses the patch then, see package uidguard. Pod, which may be a cache's, is
// not changed.
func Patch(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, change func(*v1.PodStatus)) error {
	status := pod.Status.DeepCopy()
	change(status)
	if equality.Semantic.DeepEqual(status, &pod.Status) {
		return nil
	}
	patch, err := difference(pod, status)
	if err != nil {
		return fmt.Errorf("compute the patch of the status: %w", err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// difference is computed from the statuses alone, since not every spec that is
// stored can be merged: names of environment variables, for one, may be there twice.
func difference(pod *v1.Pod, status *v1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(v1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
}

// SetCondition adds condition to status, or replaces that of its type, whose
// lastTransitionTime is kept when the condition's status stays the same.
func SetCondition(status *v1.PodStatus, condition v1.PodCondition) {
	for i := range status.Conditions {
		present := &status.Conditions[i]
		if present.Type != condition.Type {
			continue
		}
		if present.Status == condition.Status {
			condition.LastTransitionTime = present.LastTransitionTime
		}
		*present = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}
