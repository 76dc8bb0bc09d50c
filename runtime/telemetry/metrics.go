package telemetry

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // leader_election_*
	_ "k8s.io/component-base/metrics/prometheus/restclient"              // rest_client_*
	_ "k8s.io/component-base/metrics/prometheus/version"                 // kubernetes_build_info
)

// namespace of the metrics that kube-controller-manager does not have.
const namespace = "wheelhouse"

// Results of a reload.
const (
	resultApplied    = "applied"
	resultRejected   = "rejected"
	resultSuperseded = "superseded"
)

// Metrics is the daemon's registry. It serves, as one set of families, its own
// collectors, those of the controllers, and those that the Kubernetes
// libraries keep for the whole process, with the collectors of Go and of the
// process among them.
type Metrics struct {
	*queueMetrics
	controllers *controllerCollectors

	all     prometheus.Gatherers
	sources atomic.Pointer[Sources]

	reloadSuccessful prometheus.Gauge
	reloadTimestamp  prometheus.Gauge
	reloads          *prometheus.CounterVec
	pendingRestart   prometheus.Gauge
	features         *prometheus.GaugeVec
}

// NewMetrics makes the registry.
func NewMetrics() *Metrics {
	m := &Metrics{
		queueMetrics: newQueueMetrics(),
		controllers:  newControllerCollectors(),
		reloadSuccessful: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "config_last_reload_successful",
			Help: "Whether the newest configuration that was found could be used: 1 it could, 0 it was rejected.",
		}),
		reloadTimestamp: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "config_last_reload_success_timestamp_seconds",
			Help: "When a configuration was last applied, in seconds since 1970.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "config_reloads_total",
			Help: "Configurations found, by what became of them: applied, rejected or superseded by a newer one. " +
				"The one of the start counts too.",
		}, []string{"result"}),
		pendingRestart: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "config_pending_restart",
			Help: "How many changed settings take effect only at the next start of the process.",
		}),
		features: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_feature_enabled",
			Help: "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
		}, []string{"name", "stage"}),
	}
	for _, result := range []string{resultApplied, resultRejected, resultSuperseded} {
		m.reloads.WithLabelValues(result)
	}
	engine := prometheus.NewRegistry()
	engine.MustRegister(m.reloadSuccessful, m.reloadTimestamp, m.reloads, m.pendingRestart, m.features)
	engine.MustRegister(m.queueMetrics.collectors()...)
	engine.MustRegister(sourceCollector{&m.sources})
	m.all = prometheus.Gatherers{engine, m.controllers.registry, legacyregistry.DefaultGatherer}
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.all, promhttp.HandlerOpts{
		ErrorLog:         scrapeErrors{},
		ErrorHandling:    promhttp.ContinueOnError,
		ProcessStartTime: legacyregistry.GetProcessStart(),
	})
}

// scrapeErrors logs what a scrape could not collect.
type scrapeErrors struct{}

func (scrapeErrors) Println(v ...any) { slog.Error("scrape of the metrics", "err", v) }

// Controller is where one controller registers its collectors, with the
// function Register. They outlive the controller's restarts, until
// DropController. Controllers that register equal collectors share one.
func (m *Metrics) Controller(name string) prometheus.Registerer {
	return controllerRegisterer{m.controllers, name}
}

// DropController forgets the collectors that only this controller uses.
func (m *Metrics) DropController(name string) { m.controllers.drop(name) }

// SetSources says where values come from. They are asked at each scrape, by
// several goroutines.
func (m *Metrics) SetSources(s Sources) { m.sources.Store(&s) }

// ReloadApplied counts a configuration that was applied; newest is false when
// a newer one has been rejected since.
func (m *Metrics) ReloadApplied(at time.Time, newest bool) {
	m.reloads.WithLabelValues(resultApplied).Inc()
	m.reloadSuccessful.Set(number(newest))
	m.reloadTimestamp.Set(float64(at.UnixMilli()) / 1000)
}

// ReloadRejected counts a configuration that was rejected.
func (m *Metrics) ReloadRejected() {
	m.reloads.WithLabelValues(resultRejected).Inc()
	m.reloadSuccessful.Set(0)
}

// ReloadSuperseded counts a configuration that a newer one replaced while it was being applied.
func (m *Metrics) ReloadSuperseded() {
	m.reloads.WithLabelValues(resultSuperseded).Inc()
}

// SetPendingRestart is how many settings wait for the next start.
func (m *Metrics) SetPendingRestart(settings int) { m.pendingRestart.Set(float64(settings)) }

// SetFeature sets kubernetes_feature_enabled; stage is ALPHA, BETA, DEPRECATED or empty for GA.
func (m *Metrics) SetFeature(name, stage string, enabled bool) {
	m.features.WithLabelValues(name, stage).Set(number(enabled))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
