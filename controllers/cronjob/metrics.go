package cronjob

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

func registerSkew(r prometheus.Registerer) (prometheus.Histogram, error) {
	skew, err := telemetry.Register[prometheus.Histogram](r, prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "cronjob_controller",
		Name:      "job_creation_skew_duration_seconds",
		Help:      "Time between when a job is scheduled to be run, and when it is created by the API server",
		Buckets:   prometheus.ExponentialBuckets(1, 2, 10),
	}))
	if err != nil {
		return nil, fmt.Errorf("register metric: %w", err)
	}
	return skew, nil
}
