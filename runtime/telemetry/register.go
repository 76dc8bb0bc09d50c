// Package telemetry holds the daemon's logs, metrics and events.
package telemetry

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers collector, or returns the equal one registered before.
func Register[C prometheus.Collector](r prometheus.Registerer, collector C) (C, error) {
	err := r.Register(collector)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return collector, err
}
