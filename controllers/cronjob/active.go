package cronjob

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// follow takes what has become of the Jobs into the status: which are active,
// which was the last one started, and when the last success was.
func (c *cronJobController) follow(ctx context.Context, cronJob *batchv1.CronJob, children []*batchv1.Job, now time.Time) error {
	begun := since(cronJob)
	present := map[types.UID]bool{}
	for _, job := range children {
		present[job.UID] = true
		scheduled, lost := lostStart(cronJob, job, begun, now)
		if lost && scheduled.After(since(cronJob)) {
			cronJob.Status.LastScheduleTime = &metav1.Time{Time: scheduled}
		}
		if condition := jobs.Finished(job); condition != nil {
			if unlist(cronJob, job.UID) || lost {
				c.events.Eventf(cronJob, v1.EventTypeNormal, sawCompletedJob, "Saw completed job: %s, condition: %v", job.Name, condition.Type)
			}
			if condition.Type == batchv1.JobComplete {
				raiseLastSuccess(cronJob, job)
			}
			continue
		}
		if !unlisted(cronJob, job) {
			continue
		}
		if !lost {
			c.events.Eventf(cronJob, v1.EventTypeWarning, unexpectedJob,
				"Saw a job that the controller did not create or forgot: %s", job.Name)
		} else if err := list(cronJob, job); err != nil {
			return err
		}
	}
	return c.dropMissing(ctx, cronJob, present)
}

// lostStart returns the time of a Job that was created by this controller when
// it could not write that into the status any more, as in a crash. Such a time
// lies after begun, the last one that the status knows.
func lostStart(cronJob *batchv1.CronJob, job *batchv1.Job, begun, now time.Time) (time.Time, bool) {
	scheduled, ours := scheduledTime(cronJob, job)
	return scheduled, ours && scheduled.After(begun) && !scheduled.After(now)
}

func raiseLastSuccess(cronJob *batchv1.CronJob, job *batchv1.Job) {
	last, completed := cronJob.Status.LastSuccessfulTime, job.Status.CompletionTime
	if completed != nil && (last == nil || last.Before(completed)) {
		cronJob.Status.LastSuccessfulTime = completed.DeepCopy()
	}
}

// dropMissing takes Jobs that are gone off the active ones, and whatever else
// the CronJob does not control: with the policy Replace the active ones are
// deleted. The cache of Jobs may be late, so that the API server is asked.
func (c *cronJobController) dropMissing(ctx context.Context, cronJob *batchv1.CronJob, present map[types.UID]bool) error {
	for _, ref := range slices.Clone(cronJob.Status.Active) {
		if present[ref.UID] {
			continue
		}
		running, err := c.isActive(ctx, cronJob, ref)
		if err != nil {
			return err
		}
		if !running {
			c.events.Eventf(cronJob, v1.EventTypeNormal, missingJob, "Active job went missing: %v", ref.Name)
			unlist(cronJob, ref.UID)
		}
	}
	return nil
}

// isActive tells whether ref is a Job of cronJob, by what the API server has.
func (c *cronJobController) isActive(ctx context.Context, cronJob *batchv1.CronJob, ref v1.ObjectReference) (bool, error) {
	if ref.Namespace != cronJob.Namespace {
		return false, nil
	}
	job, err := c.client.BatchV1().Jobs(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case notfound.ByAPIServer(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get job %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return job.UID == ref.UID && metav1.IsControlledBy(job, cronJob), nil
}

// unlisted tells whether a Job that is neither finished nor being deleted is
// missing among the active ones.
func unlisted(cronJob *batchv1.CronJob, job *batchv1.Job) bool {
	return jobs.Finished(job) == nil && job.DeletionTimestamp == nil && indexOf(cronJob, job.UID) < 0
}

// list puts a Job on the active ones.
func list(cronJob *batchv1.CronJob, job *batchv1.Job) error {
	if indexOf(cronJob, job.UID) >= 0 {
		return nil
	}
	ref, err := reference.GetReference(scheme.Scheme, job)
	if err != nil {
		return fmt.Errorf("refer to job %s/%s: %w", job.Namespace, job.Name, err)
	}
	cronJob.Status.Active = append(cronJob.Status.Active, *ref)
	return nil
}

// unlist takes a Job off the active ones, and tells whether it was there.
func unlist(cronJob *batchv1.CronJob, uid types.UID) bool {
	i := indexOf(cronJob, uid)
	if i < 0 {
		return false
	}
	cronJob.Status.Active = slices.Delete(cronJob.Status.Active, i, i+1)
	return true
}

func indexOf(cronJob *batchv1.CronJob, uid types.UID) int {
	return slices.IndexFunc(cronJob.Status.Active, func(ref v1.ObjectReference) bool { return ref.UID == uid })
}
