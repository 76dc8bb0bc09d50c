package server

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// slis are the results of health checks as metrics of their own endpoint, so
// that they can be scraped often. A check appears when it is first called.
type slis struct {
	last    *prometheus.GaugeVec
	total   *prometheus.CounterVec
	handler http.Handler
}

func newSLIs() *slis {
	s := &slis{
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck",
			Help: "Last result of a health check: 1 passed, 0 failed.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total",
			Help: "Results of a health check since the start or the last reset.",
		}, []string{"name", "type", "status"}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.last, s.total)
	s.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return s
}

func (s *slis) observe(name, kind string, passed bool) {
	value, status := 0., "error"
	if passed {
		value, status = 1, "success"
	}
	s.last.WithLabelValues(name, kind).Set(value)
	s.total.WithLabelValues(name, kind, status).Inc()
}

func (s *slis) reset(w http.ResponseWriter, _ *http.Request) {
	s.last.Reset()
	s.total.Reset()
	fmt.Fprintln(w, "metrics reset")
}
