package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// ControllerStatus is what the metrics tell about one controller.
type ControllerStatus struct {
	Name string
	// State as in supervisor.State.
	State string
	// Running is the value of running_managed_controllers.
	Running  bool
	Restarts int
	Panics   int
}

// Sources are asked at each scrape. Nil ones have no metrics.
type Sources struct {
	Controllers    func() []ControllerStatus
	Informers      func() []informers.Status
	FencedRequests func() int64
	Leader         func() bool
}

// Metrics is the daemon's registry.
type Metrics struct{}

var _ workqueue.MetricsProvider = (*Metrics)(nil)

// NewMetrics makes the registry.
func NewMetrics() *Metrics { return &Metrics{} }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler { return http.NotFoundHandler() }

// Registerer of the engine's own parts.
func (m *Metrics) Registerer() prometheus.Registerer { return nil }

// Controller is the registry of one controller, made at the first call and
// kept until DropController. Register collectors with the function Register.
func (m *Metrics) Controller(name string) prometheus.Registerer { return nil }

// DropController forgets the controller's collectors.
func (m *Metrics) DropController(name string) {}

// SetSources says where values come from.
func (m *Metrics) SetSources(s Sources) {}

// ReloadApplied and ReloadRejected count reloads.
func (m *Metrics) ReloadApplied(at time.Time) {}

// ReloadRejected counts a rejected file.
func (m *Metrics) ReloadRejected() {}

// ReloadSuperseded counts a snapshot that a newer one replaced while it was being applied.
func (m *Metrics) ReloadSuperseded() {}

// SetPendingRestart is how many settings wait for the next start.
func (m *Metrics) SetPendingRestart(settings int) {}

// SetFeature sets kubernetes_feature_enabled; stage is ALPHA, BETA, DEPRECATED or empty for GA.
func (m *Metrics) SetFeature(name, stage string, enabled bool) {}

// DeleteQueue ends the series of a queue when its last user ends.
func (m *Metrics) DeleteQueue(name string) {}

func (m *Metrics) NewDepthMetric(name string) workqueue.GaugeMetric       { return nil }
func (m *Metrics) NewAddsMetric(name string) workqueue.CounterMetric      { return nil }
func (m *Metrics) NewLatencyMetric(name string) workqueue.HistogramMetric { return nil }
func (m *Metrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return nil
}
func (m *Metrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return nil
}
func (m *Metrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return nil
}
func (m *Metrics) NewRetriesMetric(name string) workqueue.CounterMetric { return nil }
