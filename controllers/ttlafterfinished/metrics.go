package ttlafterfinished

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// registerDeletions returns the histogram of how late Jobs are deleted. Its
// name and buckets are those of kube-controller-manager.
func registerDeletions(r prometheus.Registerer) (prometheus.Histogram, error) {
	histogram, err := telemetry.Register[prometheus.Histogram](r, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "ttl_after_finished_controller_job_deletion_duration_seconds",
		Help:    "Seconds from the expiry of a finished Job's TTL to its accepted deletion.",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
	}))
	if err != nil {
		return nil, fmt.Errorf("register the histogram of job deletions: %w", err)
	}
	return histogram, nil
}
