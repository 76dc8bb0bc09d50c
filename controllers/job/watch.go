package job

import (
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
)

// jobHandler adds Jobs: at once when somebody asks for something else, a little
// later when their status has changed. Of finished and deleted Jobs, pods may
// still hold the finalizer.
func (c *jobController) jobHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			job, ok := obj.(*batchv1.Job)
			if !ok {
				return
			}
			c.metrics.external(job, true)
			if jobs.Finished(job) != nil {
				c.orphans.AddEvent(orphansOf(job), isInInitialList)
				return
			}
			c.queue.AddEvent(cache.MetaObjectToName(job), isInInitialList)
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*batchv1.Job)
			job, ok2 := newObj.(*batchv1.Job)
			if ok && ok2 {
				c.jobChanged(before, job)
			}
		},
		DeleteFunc: func(obj any) {
			if job, ok := ownerevents.Deleted[*batchv1.Job](obj); ok {
				c.metrics.external(job, false)
				c.queue.Add(cache.MetaObjectToName(job))
				c.orphans.Add(orphansOf(job))
			}
		},
	}
}

func (c *jobController) jobChanged(before, job *batchv1.Job) {
	key := cache.MetaObjectToName(job)
	switch {
	case jobs.Finished(job) != nil:
		c.queue.Add(key) // to be forgotten
		c.orphans.AddAfter(orphansOf(job), releaseTime)
	case before.Generation != job.Generation:
		c.queue.Add(key)
	default:
		c.queue.AddAfter(key, batchTime)
	}
}

// podHandler adds the Jobs whose pods, or pods to be, something happens to, a
// little later.
func (c *jobController) podHandler() cache.ResourceEventHandler {
	return &ownerevents.Handler[*v1.Pod, *batchv1.Job]{
		Kind:     jobKind.Kind,
		Owners:   c.jobs,
		Selector: selectorOf,
		Enqueue: func(job *batchv1.Job) {
			if jobs.Finished(job) == nil {
				c.queue.AddAfter(cache.MetaObjectToName(job), batchTime)
			}
		},
		Changed: podChanged,
		Logger:  c.logger,
	}
}

// podChanged tells whether a reconcile would see a difference.
func podChanged(before, after *v1.Pod) bool {
	return before.Status.Phase != after.Status.Phase ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		hasFinalizer(before) != hasFinalizer(after) ||
		availability.IsReady(before) != availability.IsReady(after) ||
		restartCount(before) != restartCount(after) ||
		!maps.Equal(before.Labels, after.Labels) ||
		!maps.Equal(before.Annotations, after.Annotations) ||
		// What is known of a failed pod decides what its failure means.
		after.Status.Phase == v1.PodFailed && !equality.Semantic.DeepEqual(before.Status, after.Status)
}

// managedElsewhere returns who else reconciles the Job, if somebody does.
func managedElsewhere(job *batchv1.Job) (manager string, elsewhere bool) {
	if job.Spec.ManagedBy == nil || *job.Spec.ManagedBy == batchv1.JobControllerName {
		return "", false
	}
	return *job.Spec.ManagedBy, true
}
