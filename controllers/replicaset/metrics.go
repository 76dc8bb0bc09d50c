package replicaset

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

type metrics struct {
	deletionAge prometheus.Histogram
	staleSkips  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	deletionAge, err := telemetry.Register[prometheus.Histogram](r, prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "replicaset_controller",
		Name:      "sorting_deletion_age_ratio",
		Help: "The ratio of a deleted pod's age to that of the youngest pod of its owner, both of them ready. " +
			"One observation for each ready pod of a scale-down that had a choice.",
		Buckets: prometheus.ExponentialBuckets(0.25, 2, 6),
	}))
	if err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	staleSkips, err := telemetry.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "replicaset_controller",
		Name:      "stale_sync_skips_total",
		Help:      "Reconciles that were put off because the cache of a resource had not seen the controller's own last write yet.",
	}, []string{"group", "resource"}))
	if err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	return &metrics{deletionAge: deletionAge, staleSkips: staleSkips}, nil
}

func (m *metrics) stale(resource apischema.GroupResource) {
	m.staleSkips.WithLabelValues(resource.Group, resource.Resource).Inc()
}

// deletion observes that the first count of pods are deleted.
func (m *metrics) deletion(pods []*v1.Pod, count int, now time.Time) {
	var youngest time.Time
	for _, pod := range pods {
		if created := pod.CreationTimestamp.Time; availability.IsReady(pod) && created.After(youngest) {
			youngest = created
		}
	}
	youngestAge := now.Sub(youngest)
	if youngestAge < time.Second {
		return // creationTimestamp has seconds, so that no ratio says anything
	}
	for _, pod := range pods[:count] {
		if availability.IsReady(pod) {
			m.deletionAge.Observe(now.Sub(pod.CreationTimestamp.Time).Seconds() / youngestAge.Seconds())
		}
	}
}
