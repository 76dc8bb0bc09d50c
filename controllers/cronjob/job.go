package cronjob

import (
	"maps"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// jobName is the same for every attempt to start the Job of a time, so that the
// API server accepts one only.
func jobName(cronJob *batchv1.CronJob, scheduled time.Time) string {
	return cronJob.Name + "-" + strconv.FormatInt(scheduled.Unix()/60, 10)
}

// newJob returns the Job of a time, made from the template.
func newJob(cronJob *batchv1.CronJob, scheduled time.Time) *batchv1.Job {
	template := cronJob.Spec.JobTemplate
	annotations := maps.Clone(template.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	zone, err := time.LoadLocation(ptr.Deref(cronJob.Spec.TimeZone, "UTC"))
	if err != nil {
		zone = time.UTC
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = scheduled.In(zone).Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       cronJob.Namespace,
			Name:            jobName(cronJob, scheduled),
			Labels:          maps.Clone(template.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronJob, cronJobKind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// scheduledTime returns the time that a Job of cronJob was made for, and false
// if it was not made by this controller.
func scheduledTime(cronJob *batchv1.CronJob, job *batchv1.Job) (time.Time, bool) {
	scheduled, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	return scheduled, err == nil && job.Name == jobName(cronJob, scheduled)
}
