package endpointslice

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice/util"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// Results of a reconcile.
const (
	resultSuccess = "success"
	resultStale   = "stale"
	resultError   = "error"
)

const subsystem = "endpoint_slice_controller"

// metrics are those of kube-controller-manager. The library has its own, for
// the process as a whole; they are not registered.
type metrics struct {
	added, removed  prometheus.Histogram
	changedPerSync  *prometheus.HistogramVec
	changes, syncs  *prometheus.CounterVec
	trafficServices *prometheus.GaugeVec
	totals          *ownslices.Totals

	mu sync.Mutex
	// traffic is the traffic distribution of the Services that have one.
	traffic map[cache.ObjectName]string
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	var errs []error
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(2, 2, 15)}
	}
	gauge := func(name, help string) prometheus.Gauge {
		return register(r, &errs, prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}))
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return register(r, &errs, prometheus.NewCounterVec(
			prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, []string{label}))
	}
	m := &metrics{
		added: register(r, &errs, prometheus.NewHistogram(
			histogram("endpoints_added_per_sync", "Number of endpoints added on each Service sync"))),
		removed: register(r, &errs, prometheus.NewHistogram(
			histogram("endpoints_removed_per_sync", "Number of endpoints removed on each Service sync"))),
		changedPerSync: register(r, &errs, prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Subsystem: subsystem, Name: "endpointslices_changed_per_sync", Help: "Number of EndpointSlices changed on each Service sync",
			}, []string{"topology", "traffic_distribution"})),
		changes: counters("changes", "Number of EndpointSlice changes", "operation"),
		syncs:   counters("syncs", "Number of EndpointSlice syncs", "result"),
		trafficServices: register(r, &errs, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "services_count_by_traffic_distribution",
			Help: "Number of Services using some specific trafficDistribution",
		}, []string{"traffic_distribution"})),
		totals: ownslices.NewTotals(
			gauge("endpoints_desired", "Number of endpoints desired"),
			gauge("num_endpoint_slices", "Number of EndpointSlices"),
			gauge("desired_endpoint_slices", "Number of EndpointSlices that would exist with perfect endpoint allocation"),
		),
		traffic: map[cache.ObjectName]string{},
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

// setTotal of a Service from the slices that it has.
func (m *metrics) setTotal(service cache.ObjectName, slices map[string]*discovery.EndpointSlice, maxPerSlice int, traffic string) {
	m.totals.Set(service, totalOf(slices, maxPerSlice))
	m.setTraffic(service, traffic)
}

func totalOf(slices map[string]*discovery.EndpointSlice, maxPerSlice int) ownslices.Total {
	type group struct {
		family discovery.AddressType
		ports  util.PortMapKey
	}
	total := ownslices.Total{Slices: len(slices)}
	endpoints := map[group]int{}
	placeholders := map[discovery.AddressType]int{}
	for _, slice := range slices {
		total.Endpoints += len(slice.Endpoints)
		if len(slice.Endpoints) == 0 {
			placeholders[slice.AddressType] = 1
			continue
		}
		endpoints[group{slice.AddressType, util.NewPortMapKey(slice.Ports)}] += len(slice.Endpoints)
	}
	for of, count := range endpoints {
		total.Desired += (count + maxPerSlice - 1) / maxPerSlice
		delete(placeholders, of.family)
	}
	total.Desired += len(placeholders)
	return total
}

func (m *metrics) setTraffic(service cache.ObjectName, distribution string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.traffic[service]
	if before == distribution {
		return
	}
	if distribution == "" {
		delete(m.traffic, service)
	} else {
		m.traffic[service] = distribution
	}
	for _, changed := range []string{before, distribution} {
		if changed == "" {
			continue
		}
		count := 0
		for _, of := range m.traffic {
			if of == changed {
				count++
			}
		}
		m.trafficServices.WithLabelValues(changed).Set(float64(count))
	}
}

func (m *metrics) forget(service cache.ObjectName) {
	m.totals.Set(service, ownslices.Total{})
	m.setTraffic(service, "")
}
