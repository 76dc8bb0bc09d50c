package ownslices

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// Total of the slices of one Service, or of all.
type Total struct {
	Endpoints int
	// Slices that exist, and Desired, with which the endpoints could do.
	Slices, Desired int
}

// Totals sums up over all Services. It begins empty with each life of a
// controller: the gauges then grow with the Services that are reconciled.
type Totals struct {
	endpoints, slices, desired prometheus.Gauge

	mu        sync.Mutex
	byService map[cache.ObjectName]Total
	sum       Total
}

// NewTotals makes empty ones that are told to gauges.
func NewTotals(endpoints, slices, desired prometheus.Gauge) *Totals {
	return &Totals{endpoints: endpoints, slices: slices, desired: desired, byService: map[cache.ObjectName]Total{}}
}

// Set replaces the total of a Service; the zero value forgets it.
func (t *Totals) Set(service cache.ObjectName, total Total) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.byService[service]
	t.sum.Endpoints += total.Endpoints - before.Endpoints
	t.sum.Slices += total.Slices - before.Slices
	t.sum.Desired += total.Desired - before.Desired
	if total == (Total{}) {
		delete(t.byService, service)
	} else {
		t.byService[service] = total
	}
	t.endpoints.Set(float64(t.sum.Endpoints))
	t.slices.Set(float64(t.sum.Slices))
	t.desired.Set(float64(t.sum.Desired))
}
