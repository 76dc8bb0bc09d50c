package daemonset

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

type metrics struct{ staleSkips *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	staleSkips, err := telemetry.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "daemonset_controller",
		Name:      "stale_sync_skips_total",
		Help:      "Reconciles that were put off because the cache of a resource had not seen the controller's own last write yet.",
	}, []string{"group", "resource"}))
	if err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	return &metrics{staleSkips: staleSkips}, nil
}

func (m *metrics) stale(resource apischema.GroupResource) {
	m.staleSkips.WithLabelValues(resource.Group, resource.Resource).Inc()
}
