package podgc

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// reason of a deletion, a label of the metrics.
type reason string

const (
	terminated       reason = "terminated"
	outOfServiceNode reason = "out-of-service"
	orphaned         reason = "orphaned"
	unscheduled      reason = "unscheduled"
)

// metrics have the names and labels of kube-controller-manager's.
type metrics struct {
	// deletions counts attempts, failed ones too.
	deletions *prometheus.CounterVec
	errors    *prometheus.CounterVec
}

func registerMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) (*prometheus.CounterVec, error) {
		vector, err := telemetry.Register[*prometheus.CounterVec](r, prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: name, Help: help}, []string{"namespace", "reason"}))
		if err != nil {
			return nil, fmt.Errorf("register %s: %w", name, err)
		}
		return vector, nil
	}
	deletions, err := counter("pod_gc_collector_force_delete_pods_total",
		"Pods that were to be force-deleted since the process started, failed attempts included.")
	if err != nil {
		return nil, err
	}
	failed, err := counter("pod_gc_collector_force_delete_pod_errors_total",
		"Attempts to force-delete a pod that have failed since the process started.")
	if err != nil {
		return nil, err
	}
	return &metrics{deletions: deletions, errors: failed}, nil
}
