package garbagecollector

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// registerSyncErrors returns kube-controller-manager's counter of failures to
// learn what is served, or to monitor it.
func registerSyncErrors(r prometheus.Registerer) (prometheus.Counter, error) {
	counter, err := telemetry.Register[prometheus.Counter](r, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "garbagecollector_controller_resources_sync_error_total",
		Help: "Failures to learn which resources are served, or to monitor one of them.",
	}))
	if err != nil {
		return nil, fmt.Errorf("register the counter of sync errors: %w", err)
	}
	return counter, nil
}
