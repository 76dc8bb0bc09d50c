package cronjob

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

// startDue starts the Job that is due, if there is one and the concurrency policy lets it.
func (c *cronJobController) startDue(ctx context.Context, cronJob *batchv1.CronJob, times timetable, now time.Time) error {
	scheduled, due := c.due(cronJob, times, now)
	if !due || slices.ContainsFunc(cronJob.Status.Active, func(ref v1.ObjectReference) bool {
		return ref.Namespace == cronJob.Namespace && ref.Name == jobName(cronJob, scheduled)
	}) {
		return nil
	}
	switch cronJob.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(cronJob.Status.Active) > 0 {
			c.events.Event(cronJob, v1.EventTypeNormal, jobAlreadyActive,
				"Not starting job because prior execution is running and concurrency policy is Forbid")
			return nil // the end of that Job brings the CronJob back
		}
	case batchv1.ReplaceConcurrent:
		if err := c.deleteActive(ctx, cronJob); err != nil {
			return err
		}
	}
	return c.start(ctx, cronJob, scheduled)
}

// deleteActive deletes the Jobs that are to be replaced. It does not wait for their pods.
func (c *cronJobController) deleteActive(ctx context.Context, cronJob *batchv1.CronJob) error {
	for _, ref := range slices.Clone(cronJob.Status.Active) {
		err := c.deleteJob(ctx, cronJob, &metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID})
		if err != nil {
			return fmt.Errorf("could not replace job %s/%s: %w", ref.Namespace, ref.Name, err)
		}
	}
	return nil
}

// start creates the Job of a time. That it is there already means that it was
// created before a crash, or that somebody else has taken its name.
func (c *cronJobController) start(ctx context.Context, cronJob *batchv1.CronJob, scheduled time.Time) error {
	client := c.client.BatchV1().Jobs(cronJob.Namespace)
	job, err := client.Create(ctx, newJob(cronJob, scheduled), metav1.CreateOptions{})
	switch {
	case err == nil:
		c.skew.Observe(job.CreationTimestamp.Sub(scheduled).Seconds())
		c.events.Eventf(cronJob, v1.EventTypeNormal, successfulCreate, "Created job %v", job.Name)
	case podcontrol.NamespaceTerminating(err):
		return nil // no try will succeed
	case apierrors.IsAlreadyExists(err):
		name := jobName(cronJob, scheduled)
		if job, err = client.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get job %s/%s, which exists already: %w", cronJob.Namespace, name, err)
		}
		if !metav1.IsControlledBy(job, cronJob) {
			c.logger.Warn("Job is not started, another one has its name", "cronJob", cronJob.Name, "namespace", cronJob.Namespace, "job", name)
			return nil
		}
	default:
		if !podcontrol.GivenUp(ctx, err) {
			c.events.Eventf(cronJob, v1.EventTypeWarning, failedCreate, "Error creating job: %v", err)
		}
		return fmt.Errorf("create job %s/%s: %w", cronJob.Namespace, jobName(cronJob, scheduled), err)
	}
	if jobs.Finished(job) == nil {
		if err := list(cronJob, job); err != nil {
			return err
		}
	}
	cronJob.Status.LastScheduleTime = &metav1.Time{Time: scheduled}
	return nil
}

// deleteJob deletes a Job of cronJob in the background, unless another one has
// got its name since, and takes it off the active ones.
func (c *cronJobController) deleteJob(ctx context.Context, cronJob *batchv1.CronJob, job metav1.Object) error {
	background, uid := metav1.DeletePropagationBackground, job.GetUID()
	err := c.client.BatchV1().Jobs(job.GetNamespace()).Delete(ctx, job.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &uid},
	})
	gone := notfound.ByAPIServer(err) || apierrors.IsConflict(err)
	switch {
	case err == nil:
		c.events.Eventf(cronJob, v1.EventTypeNormal, successfulDelete, "Deleted job %v", job.GetName())
	case !gone:
		if !podcontrol.GivenUp(ctx, err) {
			c.events.Eventf(cronJob, v1.EventTypeWarning, failedDelete, "Deleted job: %v", err)
		}
		return err
	}
	unlist(cronJob, uid)
	return nil
}
