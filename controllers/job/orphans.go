package job

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// releaseTime is ample for the cache of pods to show which of them were
// released before their Job ended; those need no second request. So long, too,
// a pod that waits for being adopted is left to the Job at a time.
const releaseTime = 5 * time.Second

// orphanKey names what may hold the finalizer in vain: one pod, or, with a UID,
// all pods of the Job that has or had it.
type orphanKey struct {
	namespace, name string
	job             types.UID
}

// String is what the log shows.
func (k orphanKey) String() string {
	if k.job != "" {
		return fmt.Sprintf("pods of job %s/%s", k.namespace, k.name)
	}
	return k.namespace + "/" + k.name
}

func orphansOf(job *batchv1.Job) orphanKey {
	return orphanKey{namespace: job.Namespace, name: job.Name, job: job.UID}
}

// finalizerHandler adds pods that hold the finalizer and of which no Job hears,
// and counts those that have finished.
func (c *jobController) finalizerHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if pod, ok := obj.(*v1.Pod); ok {
				c.metrics.tracking(pod, true)
				c.addOrphan(pod, isInInitialList)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*v1.Pod)
			pod, ok2 := newObj.(*v1.Pod)
			if !ok || !ok2 || before.ResourceVersion == pod.ResourceVersion {
				return
			}
			c.metrics.tracking(pod, true)
			c.addOrphan(pod, false)
		},
		DeleteFunc: func(obj any) {
			if pod, ok := ownerevents.Deleted[*v1.Pod](obj); ok {
				c.metrics.tracking(pod, false)
			}
		},
	}
}

func (c *jobController) addOrphan(pod *v1.Pod, isInInitialList bool) {
	if !hasFinalizer(pod) {
		return
	}
	owner, controlled := ownerindex.ControllerOf(pod)
	if controlled {
		job, exists := ownerindex.Resolve[*batchv1.Job](c.jobs, jobKind.Kind, owner)
		// The Job of a pod that lives may just not be in the cache yet.
		if exists && jobs.Finished(job) == nil || !exists && pod.DeletionTimestamp == nil {
			return
		}
		if exists && !isInInitialList {
			c.orphans.AddAfter(orphanKey{namespace: pod.Namespace, name: pod.Name}, releaseTime)
			return
		}
	}
	c.orphans.AddEvent(orphanKey{namespace: pod.Namespace, name: pod.Name}, isInInitialList)
}

// reconcileOrphan removes the finalizer of pods that nobody counts any more.
func (c *jobController) reconcileOrphan(ctx context.Context, key orphanKey) (work.Result, error) {
	var pods []*v1.Pod
	if key.job != "" {
		owner := ownerindex.Owner{Kind: jobKind.Kind, Namespace: key.namespace, Name: key.name, UID: key.job}
		owned, err := ownerindex.Owned[*v1.Pod](c.pods, owner)
		if err != nil {
			return work.Result{}, err
		}
		pods = owned
	} else {
		obj, exists, err := c.pods.GetByKey(cache.NewObjectName(key.namespace, key.name).String())
		if err != nil || !exists {
			return work.Result{}, err
		}
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return work.Result{}, fmt.Errorf("get pod %s: store has a %T", key, obj)
		}
		pods = []*v1.Pod{pod}
	}
	var orphaned []*v1.Pod
	var wait time.Duration
	for _, pod := range pods {
		if !hasFinalizer(pod) {
			continue
		}
		needed, err := c.needsFinalizer(ctx, pod, key.job)
		switch {
		case err != nil:
			return work.Result{}, err
		case !needed:
			orphaned = append(orphaned, pod)
		case metav1.GetControllerOfNoCopy(pod) == nil:
			// The Job may end or go without having adopted it, of which no event
			// leads to the pod.
			wait = releaseTime
		}
	}
	_, err := c.releaseAll(ctx, orphaned)
	return work.Result{RequeueAfter: wait}, err
}

// needsFinalizer tells whether somebody is to count the pod yet. A Job that is
// not in the cache is looked for at the API server, unless its UID is that of
// gone, of which the cache has told: pods are made by others too, and may be
// deleted before the cache has heard of their Job.
func (c *jobController) needsFinalizer(ctx context.Context, pod *v1.Pod, gone types.UID) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return c.willBeAdopted(pod)
	}
	if ref.Kind != jobKind.Kind || ref.APIVersion != batchv1.SchemeGroupVersion.String() {
		return true, nil // by its own controller
	}
	owner, _ := ownerindex.ControllerOf(pod)
	job, exists := ownerindex.Resolve[*batchv1.Job](c.jobs, jobKind.Kind, owner)
	if !exists {
		if ref.UID == gone {
			return false, nil
		}
		live, err := c.control.Client.BatchV1().Jobs(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case notfound.ByAPIServer(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("look for job %s/%s of pod %s: %w", pod.Namespace, ref.Name, pod.Name, err)
		case live.UID != ref.UID:
			return false, nil
		}
		job = live
	}
	_, external := managedElsewhere(job)
	return external || jobs.Finished(job) == nil, nil
}

// willBeAdopted tells whether a Job is about to claim the pod, with finalizer.
func (c *jobController) willBeAdopted(pod *v1.Pod) (bool, error) {
	if pod.DeletionTimestamp != nil {
		return false, nil
	}
	matching, err := ownerindex.Matching(c.jobs, selectorOf, metav1.Object(pod))
	if err != nil {
		return false, err
	}
	for _, job := range matching {
		_, external := managedElsewhere(job)
		if !external && job.DeletionTimestamp == nil && jobs.Finished(job) == nil && !mayBeCounted(job, pod) {
			return true, nil
		}
	}
	return false, nil
}

// isTracked tells whether the pod has finished and waits for being counted.
func isTracked(pod *v1.Pod) bool {
	return availability.IsTerminal(pod) && hasFinalizer(pod)
}
