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
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{}
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

func (m *metrics) external(manager string) { m.externalJobs.WithLabelValues(manager).Inc() }

func (m *metrics) synced(job *batchv1.Job, action string, took time.Duration, err error) {
	labels := []string{modeOf(job), resultOf(err), action}
	m.syncs.WithLabelValues(labels...).Inc()
	m.syncDuration.WithLabelValues(labels...).Observe(took.Seconds())
}

// tracking notes that a pod has become another one; nil if there was or is none.
func (m *metrics) tracking(before, after *v1.Pod) {
	switch was, is := isTracked(before), isTracked(after); {
	case !was && is:
		m.terminatedTracked.WithLabelValues("add").Inc()
	case was && !is:
		m.terminatedTracked.WithLabelValues("delete").Inc()
	}
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
