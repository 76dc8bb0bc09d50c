package cronjob

import (
	"cmp"
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

// deleteHistory deletes the finished Jobs beyond the limits, the oldest first.
// What fails is tried again by the next reconcile.
func (c *cronJobController) deleteHistory(ctx context.Context, cronJob *batchv1.CronJob, children []*batchv1.Job) {
	begun := since(cronJob)
	byEnd := map[batchv1.JobConditionType][]*batchv1.Job{}
	for _, job := range children {
		condition := jobs.Finished(job)
		if condition == nil || job.DeletionTimestamp != nil {
			continue
		}
		byEnd[condition.Type] = append(byEnd[condition.Type], job)
	}
	for end, limit := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: cronJob.Spec.SuccessfulJobsHistoryLimit,
		batchv1.JobFailed:   cronJob.Spec.FailedJobsHistoryLimit,
	} {
		if limit == nil {
			continue
		}
		for _, job := range beyond(byEnd[end], int(*limit)) {
			if scheduled, ours := scheduledTime(cronJob, job); ours && scheduled.After(begun) {
				// As long as the status does not say so, the Job itself is the
				// only proof that it was started.
				continue
			}
			if err := c.deleteJob(ctx, cronJob, job); err != nil {
				if podcontrol.GivenUp(ctx, err) {
					return
				}
				c.logger.Error("Cannot delete an old job", "job", job.Name, "namespace", job.Namespace, "err", err)
			}
		}
	}
}

// beyond returns the Jobs that are too many: those that began first.
func beyond(finished []*batchv1.Job, limit int) []*batchv1.Job {
	if len(finished) <= limit {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(finished), func(a, b *batchv1.Job) int {
		return cmp.Or(compareStart(a, b), cmp.Compare(a.Name, b.Name))
	})
	return sorted[:len(sorted)-max(limit, 0)]
}

// compareStart sorts Jobs that never began last.
func compareStart(a, b *batchv1.Job) int {
	switch x, y := a.Status.StartTime, b.Status.StartTime; {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	default:
		return x.Compare(y.Time)
	}
}
