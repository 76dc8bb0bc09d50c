package cronjob

import (
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

// cronJobHandler adds every CronJob that something happens to.
func (c *cronJobController) cronJobHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if cronJob, ok := obj.(*batchv1.CronJob); ok {
				c.queue.AddEvent(cache.MetaObjectToName(cronJob), isInInitialList)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*batchv1.CronJob)
			after, ok2 := newObj.(*batchv1.CronJob)
			if ok && ok2 {
				c.updated(before, after)
			}
		},
		DeleteFunc: func(obj any) {
			if cronJob, ok := ownerevents.Deleted[*batchv1.CronJob](obj); ok {
				c.queue.Add(cache.MetaObjectToName(cronJob))
			}
		},
	}
}

// updated adds a CronJob at once, but not before the next time of a schedule
// that was changed: who edits it does not ask for a run of a time that was not
// on the timetable when it passed.
func (c *cronJobController) updated(before, after *batchv1.CronJob) {
	key := cache.MetaObjectToName(after)
	if before.Spec.Schedule == after.Spec.Schedule && ptr.Equal(before.Spec.TimeZone, after.Spec.TimeZone) {
		c.queue.Add(key)
		return
	}
	times, err := timetableOf(after)
	if err != nil {
		c.events.Eventf(after, v1.EventTypeWarning, unparseableChange, "unparseable schedule for cronjob: %s", err)
		return
	}
	if times.next(since(after)).IsZero() {
		c.queue.Add(key) // to say so
		return
	}
	c.queue.AddAfter(key, c.untilNext(times, since(after), c.clock.Now()))
}

// jobHandler adds the CronJobs whose Jobs something happens to. The initial
// list is left out: all CronJobs are reconciled at a start anyhow.
func (c *cronJobController) jobHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if job, ok := obj.(*batchv1.Job); ok && !isInInitialList {
				c.enqueueController(job)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*batchv1.Job)
			after, ok2 := newObj.(*batchv1.Job)
			if !ok || !ok2 || before.ResourceVersion == after.ResourceVersion {
				return
			}
			former, _ := ownerindex.ControllerOf(before)
			present, _ := ownerindex.ControllerOf(after)
			if former != present {
				c.enqueueController(before)
			}
			if former != present || jobChanged(before, after) {
				c.enqueueController(after)
			}
		},
		DeleteFunc: func(obj any) {
			if job, ok := ownerevents.Deleted[*batchv1.Job](obj); ok {
				c.enqueueController(job)
			}
		},
	}
}

func (c *cronJobController) enqueueController(job *batchv1.Job) {
	owner, ok := ownerindex.ControllerOf(job)
	if !ok {
		return
	}
	if cronJob, ok := ownerindex.Resolve[*batchv1.CronJob](c.cronJobs, cronJobKind.Kind, owner); ok {
		c.queue.Add(cache.MetaObjectToName(cronJob))
	}
}

// jobChanged tells whether a reconcile would see a difference.
func jobChanged(before, after *batchv1.Job) bool {
	return finishedAs(before) != finishedAs(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!before.Status.StartTime.Equal(after.Status.StartTime) ||
		!before.Status.CompletionTime.Equal(after.Status.CompletionTime)
}

// finishedAs is Complete, Failed, or empty.
func finishedAs(job *batchv1.Job) batchv1.JobConditionType {
	if condition := jobs.Finished(job); condition != nil {
		return condition.Type
	}
	return ""
}
