package job

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
)

// finalizerPatch has the pod's UID as precondition.
type finalizerPatch struct {
	Metadata struct {
		UID     types.UID `json:"uid"`
		Added   []string  `json:"finalizers,omitempty"`
		Removed []string  `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
	} `json:"metadata"`
}

// release removes the finalizer of a pod that holds it, and returns false if
// the pod is gone already.
func (c *jobController) release(ctx context.Context, pod *v1.Pod) (found bool, err error) {
	var patch finalizerPatch
	patch.Metadata.Removed = []string{batchv1.JobTrackingFinalizer}
	if found, err = c.patch(ctx, pod, patch); err != nil {
		return false, fmt.Errorf("remove the finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return found, nil
}

// releaseAll releases pods and tells whether any of them was found.
func (c *jobController) releaseAll(ctx context.Context, pods []*v1.Pod) (bool, error) {
	var one atomic.Bool
	_, err := each(pods, func(pod *v1.Pod) error {
		found, err := c.release(ctx, pod)
		if found {
			one.Store(true)
		}
		return err
	})
	return one.Load(), err
}

// track adds the finalizer to a pod that has lost it.
func (c *jobController) track(ctx context.Context, pod *v1.Pod) error {
	var patch finalizerPatch
	patch.Metadata.Added = []string{batchv1.JobTrackingFinalizer}
	if _, err := c.patch(ctx, pod, patch); err != nil {
		return fmt.Errorf("add the finalizer to pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// patch returns false if the pod is gone.
func (c *jobController) patch(ctx context.Context, pod *v1.Pod, patch finalizerPatch) (found bool, err error) {
	patch.Metadata.UID = pod.UID
	body, err := json.Marshal(patch)
	if err != nil {
		return false, err
	}
	_, err = c.control.Client.CoreV1().Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if uidguard.Gone(err) {
		return false, nil
	}
	return err == nil, err
}
