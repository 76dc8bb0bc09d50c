// Package syncmetrics counts and times the reconciles of the controllers that
// publish the root CA, by HTTP code.
package syncmetrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Options of the metrics.
type Options struct {
	// Prefix of PREFIX_sync_total and PREFIX_sync_duration_seconds.
	Prefix string
	// What is reconciled, for the help texts.
	What string
}

// Metrics of the reconciles of one controller.
type Metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	now      func() time.Time
}

// New registers the metrics.
func New(env controller.Env, o Options) (*Metrics, error) {
	labels := []string{"code"}
	total, err := telemetry.Register(env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: o.Prefix + "_sync_total",
		Help: "Number of syncs of " + o.What + ", by HTTP code.",
	}, labels))
	if err != nil {
		return nil, fmt.Errorf("register metrics of syncs: %w", err)
	}
	duration, err := telemetry.Register(env.Metrics, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    o.Prefix + "_sync_duration_seconds",
		Help:    "Seconds taken by syncs of " + o.What + ", by HTTP code.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, labels))
	if err != nil {
		return nil, fmt.Errorf("register metrics of syncs: %w", err)
	}
	return &Metrics{total: total, duration: duration, now: env.Clock.Now}, nil
}

// Measure makes reconcile count in m.
func Measure[K comparable](m *Metrics, reconcile work.Reconciler[K]) work.Reconciler[K] {
	return func(ctx context.Context, key K) (work.Result, error) {
		start := m.now()
		result, err := reconcile(ctx, key)
		code := codeOf(err)
		m.total.WithLabelValues(code).Inc()
		m.duration.WithLabelValues(code).Observe(m.now().Sub(start).Seconds())
		return result, err
	}
}

// codeOf is that of the API server's answer, 200 without an error, and 500 of all others.
func codeOf(err error) string {
	if err == nil {
		return strconv.Itoa(http.StatusOK)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code != 0 {
		return strconv.Itoa(int(status.Status().Code))
	}
	return strconv.Itoa(http.StatusInternalServerError)
}
