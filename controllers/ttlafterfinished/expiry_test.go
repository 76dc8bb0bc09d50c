package ttlafterfinished

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func finishedJob(ttl *int32, conditions ...batchv1.JobCondition) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j"},
		Spec:       batchv1.JobSpec{TTLSecondsAfterFinished: ttl},
		Status:     batchv1.JobStatus{Conditions: conditions},
	}
}

func is(kind batchv1.JobConditionType, at time.Time) batchv1.JobCondition {
	return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
}

func TestExpires(t *testing.T) {
	t.Parallel()
	now := time.Now()
	deleted := finishedJob(new(int32), is(batchv1.JobComplete, now))
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	for _, test := range []struct {
		name string
		job  *batchv1.Job
		want bool
	}{
		{"finished with a TTL", finishedJob(new(int32), is(batchv1.JobComplete, now)), true},
		{"failed with a TTL", finishedJob(new(int32), is(batchv1.JobFailed, now)), true},
		{"no TTL", finishedJob(nil, is(batchv1.JobComplete, now)), false},
		{"not finished", finishedJob(new(int32)), false},
		{"only about to fail", finishedJob(new(int32), is(batchv1.JobFailureTarget, now)), false},
		{"being deleted", deleted, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := expires(test.job); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestExpiryOf(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seconds := func(s int32) *int32 { return &s }
	for _, test := range []struct {
		name string
		job  *batchv1.Job
		want time.Time // zero: an error
	}{
		{"at once", finishedJob(seconds(0), is(batchv1.JobComplete, begin)), begin},
		{"after the TTL", finishedJob(seconds(90), is(batchv1.JobFailed, begin)), begin.Add(90 * time.Second)},
		{"68 years", finishedJob(seconds(math.MaxInt32), is(batchv1.JobComplete, begin)), begin.Add(math.MaxInt32 * time.Second)},
		{"the first final condition counts", finishedJob(seconds(1), is(batchv1.JobSuccessCriteriaMet, begin.Add(-time.Hour)),
			is(batchv1.JobFailed, begin), is(batchv1.JobComplete, begin.Add(time.Hour))), begin.Add(time.Second)},
		{"no transition time", finishedJob(seconds(1), batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}), time.Time{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := expiryOf(test.job)
			if (err != nil) != test.want.IsZero() || !got.Equal(test.want) {
				t.Errorf("got %s and error %v, want %s", got, err, test.want)
			}
		})
	}
}
