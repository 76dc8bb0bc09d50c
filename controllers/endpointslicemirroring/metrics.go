package endpointslicemirroring

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

const subsystem = "endpoint_slice_mirroring_controller"

type metrics struct {
	added, updated, removed, skipped, duration prometheus.Histogram
	changes                                    *prometheus.CounterVec
	totals                                     *ownslices.Totals
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	var errs []error
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return register(r, &errs, prometheus.NewHistogram(
			prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return register(r, &errs, prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}))
	}
	counts, seconds := prometheus.ExponentialBuckets(2, 2, 15), prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		added:    histogram("endpoints_added_per_sync", "Number of endpoints added on each Endpoints sync", counts),
		updated:  histogram("endpoints_updated_per_sync", "Number of endpoints updated on each Endpoints sync", counts),
		removed:  histogram("endpoints_removed_per_sync", "Number of endpoints removed on each Endpoints sync", counts),
		skipped:  histogram("addresses_skipped_per_sync", "Number of addresses skipped on each Endpoints sync: invalid, or beyond the limit", counts),
		duration: histogram("endpoints_sync_duration", "Duration of a sync of Endpoints in seconds", seconds),
		changes: register(r, &errs, prometheus.NewCounterVec(
			prometheus.CounterOpts{Subsystem: subsystem, Name: "changes", Help: "Number of EndpointSlice changes"}, []string{"operation"})),
		totals: ownslices.NewTotals(
			gauge("endpoints_desired", "Number of endpoints desired"),
			gauge("num_endpoint_slices", "Number of EndpointSlices"),
			gauge("desired_endpoint_slices", "Number of EndpointSlices that would exist with perfect endpoint allocation"),
		),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func register[C prometheus.Collector](r prometheus.Registerer, errs *[]error, collector C) C {
	registered, err := telemetry.Register(r, collector)
	*errs = append(*errs, err)
	return registered
}

func (m *metrics) changed(operation string) { m.changes.WithLabelValues(operation).Inc() }

func (m *metrics) observe(p plan) {
	m.added.Observe(float64(p.added))
	m.updated.Observe(float64(p.updated))
	m.removed.Observe(float64(p.removed))
}

// setTotal after a plan was carried out: there is one slice for each group.
func (m *metrics) setTotal(key cache.ObjectName, w wanted) {
	total := ownslices.Total{Slices: len(w.groups), Desired: len(w.groups)}
	for _, c := range w.groups {
		total.Endpoints += c.endpoints.Len()
	}
	m.totals.Set(key, total)
}

func (m *metrics) forget(key cache.ObjectName) { m.totals.Set(key, ownslices.Total{}) }
