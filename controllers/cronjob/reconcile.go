package cronjob

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// padding is how long after a time its Job is started, lest a clock that is
// behind by a little takes it for not due yet.
const padding = 100 * time.Millisecond

// farAway is when to look again for a next time that is more than five years
// away, as a February 29 may be.
const farAway = 30 * 24 * time.Hour

// reconcile keeps the status of a CronJob, deletes old Jobs, starts the one that
// is due, and comes back at the next time of the schedule.
func (c *cronJobController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	// 1. The garbage collector cares for the Jobs of one that is gone.
	stored, children, err := c.lookUp(ctx, key)
	if err != nil {
		return work.Result{RequeueAfter: c.nextTime(stored)}, err
	}
	if stored == nil {
		return work.Result{}, nil
	}

	// 2. Everything changes the status of a copy, which is written once, at the end.
	cronJob := *stored
	cronJob.Status = *stored.Status.DeepCopy()
	wait, err := c.act(ctx, &cronJob, children)

	// 3. What has been done is told even if something else has failed.
	if !equality.Semantic.DeepEqual(cronJob.Status, stored.Status) {
		_, writeErr := c.client.BatchV1().CronJobs(key.Namespace).UpdateStatus(ctx, &cronJob, metav1.UpdateOptions{})
		if writeErr != nil && !notfound.ByAPIServer(writeErr) {
			err = errors.Join(err, fmt.Errorf("update status of cronjob %s: %w", key, writeErr))
		}
	}
	return work.Result{RequeueAfter: wait}, err
}

// lookUp returns a CronJob, nil if it is gone, and its Jobs. Beside an error it
// returns what the cache has, nil if that is nothing.
func (c *cronJobController) lookUp(ctx context.Context, key work.ObjectName) (*batchv1.CronJob, []*batchv1.Job, error) {
	obj, exists, err := c.cronJobs.GetByKey(key.String())
	if err != nil || !exists {
		return nil, nil, err
	}
	cached, ok := obj.(*batchv1.CronJob)
	if !ok {
		return nil, nil, fmt.Errorf("look up cronjob %s: store has a %T", key, obj)
	}
	children, err := ownerindex.Owned[*batchv1.Job](c.jobs, ownerindex.OwnerOf(cronJobKind.Kind, cached))
	if err != nil {
		return cached, nil, fmt.Errorf("look up jobs of cronjob %s: %w", key, err)
	}
	for _, job := range children {
		if !unlisted(cached, job) {
			continue
		}
		// A Job that the status lacks is seldom, and may be one that the cache of
		// CronJobs does not show yet.
		live, err := c.client.BatchV1().CronJobs(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		switch {
		case notfound.ByAPIServer(err), err == nil && live.UID != cached.UID:
			return nil, nil, nil
		case err != nil:
			return cached, nil, fmt.Errorf("get cronjob %s: %w", key, err)
		}
		return live, children, nil
	}
	return cached, children, nil
}

// act does what a CronJob needs, and changes its status. It returns how long to
// wait for the next time, also beside an error; 0 if none is to be waited for.
func (c *cronJobController) act(ctx context.Context, cronJob *batchv1.CronJob, children []*batchv1.Job) (time.Duration, error) {
	now := c.clock.Now()
	c.deleteHistory(ctx, cronJob, children)
	err := c.follow(ctx, cronJob, children, now)
	if cronJob.DeletionTimestamp != nil {
		return 0, err
	}
	times, ok := c.timetable(cronJob)
	if !ok {
		return 0, err // until somebody changes it
	}
	// Who does not know which Jobs run must not start another.
	if err == nil {
		err = c.startDue(ctx, cronJob, times, now)
	}
	return c.untilNext(times, since(cronJob), now), err
}

// nextTime is how long to wait for the next time of a CronJob about which nothing
// could be done; 0 if none is to be waited for.
func (c *cronJobController) nextTime(cronJob *batchv1.CronJob) time.Duration {
	if cronJob == nil || cronJob.DeletionTimestamp != nil {
		return 0
	}
	times, ok := c.timetable(cronJob)
	if !ok {
		return 0
	}
	return c.untilNext(times, since(cronJob), c.clock.Now())
}

// untilNext is how long to wait for the first time after begun and after looked,
// when it was looked for what is due. It may have passed since.
func (c *cronJobController) untilNext(times timetable, begun, looked time.Time) time.Duration {
	if begun.Before(looked) {
		begun = looked
	}
	next := times.next(begun)
	if next.IsZero() {
		return farAway
	}
	return max(next.Add(padding).Sub(c.clock.Now()), time.Millisecond)
}

// timetable returns the times of a CronJob, and false if it has none at
// present: because it is suspended, or for a reason that is told in an event
// and that only a change of the CronJob removes.
func (c *cronJobController) timetable(cronJob *batchv1.CronJob) (timetable, bool) {
	if err := c.zones.check(cronJob); err != nil {
		c.events.Eventf(cronJob, v1.EventTypeWarning, unknownTimeZone, "invalid timeZone: %q: %s", *cronJob.Spec.TimeZone, err)
		return timetable{}, false
	}
	if ptr.Deref(cronJob.Spec.Suspend, false) {
		return timetable{}, false
	}
	if hasOwnZone(cronJob.Spec.Schedule) {
		c.events.Eventf(cronJob, v1.EventTypeWarning, unsupportedSchedule, "CRON_TZ or TZ used in schedule %q is not officially supported, "+
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", cronJob.Spec.Schedule)
	}
	times, err := c.zones.timetableOf(cronJob)
	if err != nil {
		c.events.Eventf(cronJob, v1.EventTypeWarning, unparseableSchedule, "unparseable schedule: %q : %s", cronJob.Spec.Schedule, err)
		return timetable{}, false
	}
	if times.next(since(cronJob)).IsZero() {
		c.events.Eventf(cronJob, v1.EventTypeWarning, invalidSchedule, "invalid schedule: %s : %s", cronJob.Spec.Schedule, errNeverDue)
		return timetable{}, false
	}
	return times, true
}

// due returns the time whose Job has to be started now, and false if there is none.
func (c *cronJobController) due(cronJob *batchv1.CronJob, times timetable, now time.Time) (time.Time, bool) {
	begun := since(cronJob)
	from := begun
	if limit := notBefore(cronJob, now); limit.After(begun) {
		from = limit
	}
	scheduled, count := times.latest(from, now)
	if count == 0 {
		if missed, count := times.latest(begun, now); count > 0 {
			c.events.Eventf(cronJob, v1.EventTypeWarning, missSchedule, "Missed scheduled time to start a job: %s",
				missed.UTC().Format(time.RFC1123Z))
		}
		return time.Time{}, false
	}
	if count > tooMany {
		c.events.Event(cronJob, v1.EventTypeWarning, tooManyMissedTimes, "too many missed start times. "+
			"Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	return scheduled, true
}

// notBefore is the time from which on runs may still be started, zero if they always may.
func notBefore(cronJob *batchv1.CronJob, now time.Time) time.Time {
	deadline := cronJob.Spec.StartingDeadlineSeconds
	if deadline == nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(min(*deadline, math.MaxInt64/int64(time.Second))) * time.Second)
}
