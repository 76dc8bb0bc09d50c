package harness

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CatchUp returns when the engine's caches of resources hold what the API
// server holds now, so that what a controller does not do from now on is not
// done for want of knowledge. Event handlers may be a moment later.
func (e *Engine) CatchUp(resources ...schema.GroupVersionResource) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), readyWithin)
	defer cancel()
	lease := e.pool.Lease("test")
	defer lease.Release()
	for _, resource := range resources {
		if _, err := lease.Informer(resource); err != nil {
			e.t.Fatal(err)
		}
	}
	if err := lease.CatchUp(ctx, time.Now()); err != nil {
		e.t.Fatalf("caches do not catch up: %v", err)
	}
}
