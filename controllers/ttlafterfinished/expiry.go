package ttlafterfinished

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
)

// expires tells whether a Job has to be deleted now or at a later time.
func expires(job *batchv1.Job) bool {
	return job.DeletionTimestamp == nil && job.Spec.TTLSecondsAfterFinished != nil && jobs.Finished(job) != nil
}

// ttlOf a Job that has one. The field is an int32 of seconds, 68 years at the most.
func ttlOf(job *batchv1.Job) time.Duration {
	return time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second
}

// expiryOf returns when a Job that expires does so: its TTL after the
// transition of the condition by which it has finished. status.completionTime
// does not count, since a failed Job has none.
func expiryOf(job *batchv1.Job) (time.Time, error) {
	finish := jobs.Finished(job).LastTransitionTime
	if finish.IsZero() {
		return time.Time{}, fmt.Errorf("job %s has finished, but its condition has no lastTransitionTime", cache.MetaObjectToName(job))
	}
	return finish.Add(ttlOf(job)), nil
}
