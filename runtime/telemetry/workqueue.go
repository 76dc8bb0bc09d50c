package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queueMetrics are the workqueue_* families, equal in name, help and buckets
// to those of kube-controller-manager. Unlike there, the series of a queue end with it.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec

	mu sync.Mutex
	// queues that have the name, since some share one.
	queues map[string]int
}

var _ workqueue.MetricsProvider = (*queueMetrics)(nil)

func newQueueMetrics() *queueMetrics {
	name := []string{"name"}
	gauge := func(metric, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: "workqueue", Name: metric, Help: help}, name)
	}
	counter := func(metric, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "workqueue", Name: metric, Help: help}, name)
	}
	histogram := func(metric, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "workqueue", Name: metric, Help: help,
			Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10),
			// What component-base offers beside the buckets, to scrapers that ask for it.
			NativeHistogramBucketFactor:    1.1,
			NativeHistogramMaxBucketNumber: 160,
		}, name)
	}
	return &queueMetrics{
		queues: map[string]int{},
		depth:  gauge("depth", "[BETA] Current depth of workqueue"),
		adds:   counter("adds_total", "[BETA] Total number of adds handled by workqueue"),
		latency: histogram("queue_duration_seconds",
			"[BETA] How long in seconds an item stays in workqueue before being requested."),
		work: histogram("work_duration_seconds",
			"[BETA] How long in seconds processing an item from workqueue takes."),
		unfinished: gauge("unfinished_work_seconds",
			"[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. "+
				"Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate "+
				"at which this increases."),
		longest: gauge("longest_running_processor_seconds",
			"[BETA] How many seconds has the longest running processor for workqueue been running."),
		retries: counter("retries_total", "[BETA] Total number of retries handled by workqueue"),
	}
}

func (q *queueMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{q.depth, q.adds, q.latency, q.work, q.unfinished, q.longest, q.retries}
}

// DeleteQueue ends a queue's series. A name that several queues have ends with
// the last of them. The queue may still write to its metrics afterwards; that
// is not seen.
func (q *queueMetrics) DeleteQueue(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues[name]--; q.queues[name] > 0 {
		return
	}
	delete(q.queues, name)
	for _, vec := range []interface{ DeleteLabelValues(...string) bool }{
		q.depth, q.adds, q.latency, q.work, q.unfinished, q.longest, q.retries,
	} {
		vec.DeleteLabelValues(name)
	}
}

// NewDepthMetric implements workqueue.MetricsProvider. It is called once for each queue.
func (q *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queues[name]++
	return q.depth.WithLabelValues(name)
}

// NewAddsMetric implements workqueue.MetricsProvider.
func (q *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.adds.WithLabelValues(name)
}

// NewLatencyMetric implements workqueue.MetricsProvider.
func (q *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.latency.WithLabelValues(name)
}

// NewWorkDurationMetric implements workqueue.MetricsProvider.
func (q *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return q.work.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (q *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (q *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.longest.WithLabelValues(name)
}

// NewRetriesMetric implements workqueue.MetricsProvider.
func (q *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.retries.WithLabelValues(name)
}
