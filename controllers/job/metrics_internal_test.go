package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// series are all that are not zero, as "NAME VALUES-OF-LABELS = VALUE"; of a
// histogram it is the sum.
func series(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			text := strings.TrimPrefix(family.GetName(), "job_controller_")
			for _, name := range slices.Sorted(maps.Keys(labels)) {
				text += " " + name + "=" + labels[name]
			}
			if value := metric.GetCounter().GetValue() + metric.GetHistogram().GetSampleSum(); value != 0 {
				found = append(found, fmt.Sprint(text, " = ", value))
			}
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	perIndex := func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](0) }
	patient := func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }
	failedPod := testPod("failed", v1.PodFailed, 1)
	for _, test := range []struct {
		name string
		act  func(*metrics)
		want []string
	}{
		{"reconciles", func(m *metrics) {
			m.synced(testJob(1, 1), actionPodsCreated, 2*time.Second, nil)
			m.synced(testIndexedJob(1, 1), actionTracking, time.Second, errors.New("down"))
		}, []string{
			"job_sync_duration_seconds action=pods_created completion_mode=NonIndexed result=success = 2",
			"job_sync_duration_seconds action=tracking completion_mode=Indexed result=error = 1",
			"job_syncs_total action=pods_created completion_mode=NonIndexed result=success = 1",
			"job_syncs_total action=tracking completion_mode=Indexed result=error = 1",
		}},
		{"ends", func(m *metrics) {
			m.finished(testJob(1, 1), &outcome{reason: batchv1.JobReasonCompletionsReached})
			m.finished(testIndexedJob(1, 1), failure(batchv1.JobReasonFailedIndexes, ""))
		}, []string{
			"jobs_finished_total completion_mode=Indexed reason=FailedIndexes result=failed = 1",
			"jobs_finished_total completion_mode=NonIndexed reason=CompletionsReached result=succeeded = 1",
		}},
		{"creations", func(m *metrics) {
			m.created(stateOf(testJob(2, 2)), creation{}, nil)
			m.created(stateOf(testJob(2, 2)), creation{}, errors.New("quota"))
			m.created(stateOf(testJob(2, 2), testPod("failed", v1.PodFailed, -1)), creation{}, nil)
			m.created(stateOf(testJob(2, 2), testPod("going", v1.PodRunning, -1, deleting)), creation{}, nil)
			m.created(stateOf(changed(testJob(2, 2), patient), testPod("failed", v1.PodFailed, -1)), creation{}, nil)
			// With a limit per index only that of the index counts.
			m.created(stateOf(changed(testIndexedJob(2, 2), perIndex), failedPod), creation{index: 0}, nil)
			m.created(stateOf(changed(testIndexedJob(2, 2), perIndex), failedPod), creation{index: 1, replaces: failedPod}, nil)
			m.created(stateOf(changed(testIndexedJob(2, 2), perIndex, patient), failedPod), creation{index: 1, replaces: failedPod}, nil)
		}, []string{
			"job_pods_creation_total reason=new status=failed = 1",
			"job_pods_creation_total reason=new status=succeeded = 2",
			"job_pods_creation_total reason=recreate_failed status=succeeded = 2",
			"job_pods_creation_total reason=recreate_terminating_or_failed status=succeeded = 3",
		}},
		{"indexes", func(m *metrics) {
			before := func(j *batchv1.Job) { j.Status.CompletedIndexes = "3" }
			pods := []*v1.Pod{testPod("a", v1.PodSucceeded, 0), testPod("b", v1.PodSucceeded, 2), failedPod}
			for _, job := range []*batchv1.Job{changed(testIndexedJob(4, 4), before), changed(testIndexedJob(4, 4), before, perIndex)} {
				s := stateOf(job, pods...)
				a := s.account(nil, nil)
				m.counted(s, &a)
			}
		}, []string{
			"job_finished_indexes_total backoffLimit=global status=succeeded = 2",
			"job_finished_indexes_total backoffLimit=perIndex status=failed = 1",
			"job_finished_indexes_total backoffLimit=perIndex status=succeeded = 2",
			"job_pods_finished_total completion_mode=Indexed result=succeeded = 4",
		}},
		{"pods", func(m *metrics) { m.settled(testJob(1, 1), tally{succeeded: 2, failed: 3}) }, []string{
			"job_pods_finished_total completion_mode=NonIndexed result=failed = 3",
			"job_pods_finished_total completion_mode=NonIndexed result=succeeded = 2",
		}},
		{"finalizers", func(m *metrics) {
			for _, pod := range []*v1.Pod{testPod("a", v1.PodSucceeded, -1), testPod("b", v1.PodFailed, -1), testPod("c", v1.PodRunning, -1)} {
				m.tracking(pod, true)
				m.tracking(pod, true) // told once more by another life
			}
			m.tracking(testPod("a", v1.PodSucceeded, -1, untracked), true)
			m.tracking(testPod("b", v1.PodFailed, -1), false)
			m.tracking(testPod("c", v1.PodRunning, -1), false)
			m.tracking(testPod("b", v1.PodFailed, -1), true)
		}, []string{
			"terminated_pods_tracking_finalizer_total event=add = 3",
			"terminated_pods_tracking_finalizer_total event=delete = 2",
		}},
		{"external Jobs", func(m *metrics) {
			external := func(uid types.UID) *batchv1.Job {
				job := testJob(1, 1)
				job.UID, job.Spec.ManagedBy = uid, ptr.To("example.com/x")
				return job
			}
			m.external(external("a"), true)
			m.external(external("a"), true)
			m.external(external("b"), true)
			m.external(external("b"), false)
			m.external(testJob(1, 1), true)
		}, []string{"jobs_by_external_controller_total controller_name=example.com/x = 2"}},
		{"late caches", func(m *metrics) { m.stale(apischema.GroupResource{Group: "batch", Resource: "jobs"}) },
			[]string{"stale_sync_skips_total group=batch resource=jobs = 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			m, err := newMetrics(registry, newSeen())
			if err != nil {
				t.Fatal(err)
			}
			test.act(m)
			if got := series(t, registry); !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
