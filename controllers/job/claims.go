package job

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/claim"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

func selectorOf(job *batchv1.Job) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(job.Spec.Selector)
}

// podsOf adopts and releases pods, and returns those of job, and the UIDs of
// all pods that it might have counted and that hold the finalizer.
func (c *jobController) podsOf(ctx context.Context, job *batchv1.Job, selector labels.Selector) ([]*v1.Pod, map[types.UID]bool, error) {
	candidates, err := ownerindex.Candidates[*v1.Pod](c.pods, ownerindex.OwnerOf(jobKind.Kind, job))
	if err != nil {
		return nil, nil, err
	}
	claims := claim.Claims[*v1.Pod]{
		Owner:      job,
		OwnerKind:  jobKind,
		Kind:       "Pod",
		Selector:   selector,
		Finalizers: []string{batchv1.JobTrackingFinalizer},
		GetOwner: func(ctx context.Context, name string) (metav1.Object, error) {
			return c.control.Client.BatchV1().Jobs(job.Namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Patch: claim.PatchPod(c.control.Client),
	}
	tracked := map[types.UID]bool{}
	for _, pod := range candidates {
		if hasFinalizer(pod) {
			tracked[pod.UID] = true
		}
	}
	candidates = slices.DeleteFunc(candidates, func(pod *v1.Pod) bool { return mayBeCounted(job, pod) })
	pods, err := claims.Claim(ctx, candidates)
	return pods, tracked, err
}

// mayBeCounted tells whether pod is one that job has counted and lost since:
// one without a controller that has finished and has no finalizer. To adopt it
// would be to count it again. Those that are older than the Job are not its own.
func mayBeCounted(job *batchv1.Job, pod *v1.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil && availability.IsTerminal(pod) && !hasFinalizer(pod) &&
		!pod.CreationTimestamp.Before(&job.CreationTimestamp)
}
