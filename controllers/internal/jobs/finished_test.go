package jobs

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestFinished(t *testing.T) {
	t.Parallel()
	is := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: status}
	}
	for _, test := range []struct {
		name       string
		conditions []batchv1.JobCondition
		want       batchv1.JobConditionType // empty: not finished
	}{
		{"no condition", nil, ""},
		{"complete", []batchv1.JobCondition{is(batchv1.JobComplete, corev1.ConditionTrue)}, batchv1.JobComplete},
		{"failed", []batchv1.JobCondition{is(batchv1.JobFailed, corev1.ConditionTrue)}, batchv1.JobFailed},
		{"complete is false", []batchv1.JobCondition{is(batchv1.JobComplete, corev1.ConditionFalse)}, ""},
		{"failed is unknown", []batchv1.JobCondition{is(batchv1.JobFailed, corev1.ConditionUnknown)}, ""},
		{"suspended", []batchv1.JobCondition{is(batchv1.JobSuspended, corev1.ConditionTrue)}, ""},
		{"about to complete", []batchv1.JobCondition{is(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)}, ""},
		{"about to fail", []batchv1.JobCondition{is(batchv1.JobFailureTarget, corev1.ConditionTrue)}, ""},
		{"the first of two counts", []batchv1.JobCondition{
			is(batchv1.JobFailed, corev1.ConditionTrue), is(batchv1.JobComplete, corev1.ConditionTrue),
		}, batchv1.JobFailed},
		{"a false one before it does not", []batchv1.JobCondition{
			is(batchv1.JobFailed, corev1.ConditionFalse), is(batchv1.JobComplete, corev1.ConditionTrue),
		}, batchv1.JobComplete},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := Finished(&batchv1.Job{Status: batchv1.JobStatus{Conditions: test.conditions}})
			switch {
			case got == nil && test.want != "":
				t.Errorf("not finished, want %s", test.want)
			case got != nil && got.Type != test.want:
				t.Errorf("finished by %s, want %q", got.Type, test.want)
			}
		})
	}
}
