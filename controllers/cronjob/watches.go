package cronjob

import (
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
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
	unknownZone := c.zones.check(after) != nil
	alone := *after // to see what the schedule is without that zone
	if unknownZone {
		alone.Spec.TimeZone = nil
	}
	times, err := c.zones.timetableOf(&alone)
	if err != nil {
		c.events.Eventf(after, v1.EventTypeWarning, unparseableChange, "unparseable schedule for cronjob: %s", err)
		return
	}
	if unknownZone || times.next(since(after)).IsZero() {
		c.queue.Add(key) // to say so
		return
	}
	c.queue.AddAfter(key, c.untilNext(times, since(after), c.clock.Now()))
}

// jobHandler adds the CronJobs whose Jobs something happens to.
func (c *cronJobController) jobHandler() cache.ResourceEventHandler {
	return &ownerevents.Handler[*batchv1.Job, *batchv1.CronJob]{
		Kind:    cronJobKind.Kind,
		Owners:  c.cronJobs,
		Enqueue: func(cronJob *batchv1.CronJob) { c.queue.Add(cache.MetaObjectToName(cronJob)) },
		Changed: jobChanged,
		Logger:  c.logger,
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
