package statefulset

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

type metrics struct {
	maxUnavailable *prometheus.GaugeVec
	unavailable    *prometheus.GaugeVec
	staleSkips     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	perSet := []string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}
	m := &metrics{
		maxUnavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: "statefulset_controller",
			Name:      "statefulset_max_unavailable",
			Help:      "How many pods of the StatefulSet may be unavailable during a rolling update, as a number of pods.",
		}, perSet),
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: "statefulset_controller",
			Name:      "statefulset_unavailable_replicas",
			Help:      "How many pods of the StatefulSet were unavailable when a rolling update was last considered.",
		}, perSet),
		staleSkips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "statefulset_controller",
			Name:      "stale_sync_skips_total",
			Help:      "Reconciles that were put off because the cache of a resource had not seen the controller's own last write yet.",
		}, []string{"group", "resource"}),
	}
	var err error
	if m.maxUnavailable, err = telemetry.Register(r, m.maxUnavailable); err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	if m.unavailable, err = telemetry.Register(r, m.unavailable); err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	if m.staleSkips, err = telemetry.Register(r, m.staleSkips); err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	// Sets of an earlier life of the controller may be gone by now.
	m.maxUnavailable.Reset()
	m.unavailable.Reset()
	return m, nil
}

func (m *metrics) stale(resource apischema.GroupResource) {
	m.staleSkips.WithLabelValues(resource.Group, resource.Resource).Inc()
}

func (m *metrics) setMaxUnavailable(set *appsv1.StatefulSet, pods int) {
	m.maxUnavailable.WithLabelValues(set.Namespace, set.Name, string(set.Spec.PodManagementPolicy)).Set(float64(pods))
}

func (m *metrics) setUnavailable(set *appsv1.StatefulSet, pods int) {
	m.unavailable.WithLabelValues(set.Namespace, set.Name, string(set.Spec.PodManagementPolicy)).Set(float64(pods))
}

// forget removes the series of a set that is gone.
func (m *metrics) forget(key work.ObjectName) {
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		m.maxUnavailable.DeleteLabelValues(key.Namespace, key.Name, string(policy))
		m.unavailable.DeleteLabelValues(key.Namespace, key.Name, string(policy))
	}
}
