package job

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// What a reconcile did, as the label action says it.
const (
	actionReconciling = "reconciling"
	actionTracking    = "tracking"
	actionPodsCreated = "pods_created"
	actionPodsDeleted = "pods_deleted"
)

type metrics struct {
	syncDuration      *prometheus.HistogramVec
	syncs             *prometheus.CounterVec
	jobsFinished      *prometheus.CounterVec
	podsFinished      *prometheus.CounterVec
	policyFailures    *prometheus.CounterVec
	terminatedTracked *prometheus.CounterVec
	externalJobs      *prometheus.CounterVec
	finishedIndexes   *prometheus.CounterVec
	podsCreated       *prometheus.CounterVec
	staleSkips        *prometheus.CounterVec

	seen *seen
}

func newMetrics(r prometheus.Registerer, seen *seen) (*metrics, error) {
	m := &metrics{seen: seen}
	for _, counter := range []struct {
		into       **prometheus.CounterVec
		name, help string
		labels     []string
	}{
		{&m.syncs, "job_syncs_total", "Reconciles of Jobs.", []string{"completion_mode", "result", "action"}},
		{&m.jobsFinished, "jobs_finished_total", "Jobs that have completed or failed.", []string{"completion_mode", "result", "reason"}},
		{&m.podsFinished, "job_pods_finished_total", "Finished pods that were counted.", []string{"completion_mode", "result"}},
		{&m.policyFailures, "pod_failures_handled_by_failure_policy_total", "Failed pods that met a rule of their Job's pod failure policy.",
			[]string{"action"}},
		{&m.terminatedTracked, "terminated_pods_tracking_finalizer_total",
			"Finished pods with the finalizer batch.kubernetes.io/job-tracking: add when there is another one, delete when there is one less.",
			[]string{"event"}},
		{&m.externalJobs, "jobs_by_external_controller_total", "Jobs that another controller reconciles, by spec.managedBy.",
			[]string{"controller_name"}},
		{&m.finishedIndexes, "job_finished_indexes_total", "Indexes of Indexed Jobs that have succeeded or failed.",
			[]string{"status", "backoffLimit"}},
		{&m.podsCreated, "job_pods_creation_total",
			"Attempts to create a pod: new, or to replace one that recreate_failed waited for to end, or recreate_terminating_or_failed did not.",
			[]string{"reason", "status"}},
		{&m.staleSkips, "stale_sync_skips_total",
			"Reconciles that were put off because the cache of a resource had not seen the controller's own last write yet.",
			[]string{"group", "resource"}},
	} {
		registered, err := telemetry.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "job_controller", Name: counter.name, Help: counter.help,
		}, counter.labels))
		if err != nil {
			return nil, fmt.Errorf("register metric: %w", err)
		}
		*counter.into = registered
	}
	var err error
	m.syncDuration, err = telemetry.Register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: "job_controller",
		Name:      "job_sync_duration_seconds",
		Help:      "How long reconciles of Jobs took.",
		Buckets:   prometheus.ExponentialBuckets(0.004, 2, 15),
	}, []string{"completion_mode", "result", "action"}))
	if err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	return m, nil
}

func (m *metrics) stale(resource apischema.GroupResource) {
	m.staleSkips.WithLabelValues(resource.Group, resource.Resource).Inc()
}

// external notes whether a Job is one that another controller reconciles. One
// that is gone is not.
func (m *metrics) external(job *batchv1.Job, exists bool) {
	manager, external := managedElsewhere(job)
	if m.seen.external.set(job.UID, exists && external) && exists {
		m.externalJobs.WithLabelValues(manager).Inc()
	}
}

func (m *metrics) synced(job *batchv1.Job, action string, took time.Duration, err error) {
	labels := []string{modeOf(job), resultOf(err), action}
	m.syncs.WithLabelValues(labels...).Inc()
	m.syncDuration.WithLabelValues(labels...).Observe(took.Seconds())
}

// tracking notes whether a pod has finished and waits for being counted. One that
// is gone does not.
func (m *metrics) tracking(pod *v1.Pod, exists bool) {
	tracked := exists && isTracked(pod)
	if !m.seen.terminated.set(pod.UID, tracked) {
		return
	}
	event := "delete"
	if tracked {
		event = "add"
	}
	m.terminatedTracked.WithLabelValues(event).Inc()
}

// created notes an attempt to create a pod.
func (m *metrics) created(s *state, c creation, err error) {
	reason := "new"
	if c.replaces != nil || !s.perIndex && s.failed+len(s.terminating) > 0 {
		reason = "recreate_terminating_or_failed"
		if s.waitsForTermination() {
			reason = "recreate_failed"
		}
	}
	status := "succeeded"
	if err != nil {
		status = "failed"
	}
	m.podsCreated.WithLabelValues(reason, status).Inc()
}

// counted notes what the status that was just written has counted.
func (m *metrics) counted(s *state, a *account) {
	for _, pod := range a.counted {
		if action := s.matches[pod.UID].action; action != "" {
			m.policyFailures.WithLabelValues(string(action)).Inc()
		}
	}
	m.settled(s.job, a.settled)
	if !s.indexed {
		return
	}
	before, _ := parseIndexes(s.job.Status.CompletedIndexes, s.completions)
	limit := "global"
	if s.perIndex {
		limit = "perIndex"
		var failedBefore indexSet
		if s.job.Status.FailedIndexes != nil {
			failedBefore, _ = parseIndexes(*s.job.Status.FailedIndexes, s.completions)
		}
		m.finishedIndexes.WithLabelValues("failed", limit).Add(float64(s.failedIndexes.count() - failedBefore.count()))
	}
	completed := float64(s.completedIndexes.count() - before.count())
	m.finishedIndexes.WithLabelValues("succeeded", limit).Add(completed)
	m.podsFinished.WithLabelValues(modeOf(s.job), "succeeded").Add(completed)
}

// settled notes UIDs that became counts.
func (m *metrics) settled(job *batchv1.Job, t tally) {
	m.podsFinished.WithLabelValues(modeOf(job), "succeeded").Add(float64(t.succeeded))
	m.podsFinished.WithLabelValues(modeOf(job), "failed").Add(float64(t.failed))
}

func (m *metrics) finished(job *batchv1.Job, end *outcome) {
	result := "succeeded"
	if end.failed {
		result = "failed"
	}
	m.jobsFinished.WithLabelValues(modeOf(job), result, end.reason).Inc()
}

func modeOf(job *batchv1.Job) string {
	if job.Spec.CompletionMode == nil {
		return string(batchv1.NonIndexedCompletion)
	}
	return string(*job.Spec.CompletionMode)
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}
