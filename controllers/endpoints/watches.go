package endpoints

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
)

// podChanged adds a Service whose pods have changed, once a batch is gathered and
// the Service has rested from its last reconcile.
func (c *endpointsController) podChanged(service cache.ObjectName) {
	c.queue.AddAfter(service, max(c.batchPeriod(), c.pace.Left(service)))
}

// serviceHandler adds every Service that something happens to, and notes those that go.
func (c *endpointsController) serviceHandler() cache.ResourceEventHandler {
	changed := servicepods.ServiceHandler(c.queue)
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    changed.OnAdd,
		UpdateFunc: changed.OnUpdate,
		DeleteFunc: func(obj any) {
			if service, ok := ownerevents.Deleted[*v1.Service](obj); ok {
				c.departed.note(cache.MetaObjectToName(service))
			}
			changed.OnDelete(obj)
		},
	}
}

// endpointsHandler adds Services whose Endpoints are gone, and at a start all
// Endpoints, for their Services may be gone. Those that serve as a lock of a
// leader election never had one. What somebody writes into Endpoints stays
// until the Service or a pod changes.
func (c *endpointsController) endpointsHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			endpoints, ok := obj.(*v1.Endpoints)
			if !ok || !isInInitialList {
				return
			}
			if _, isLock := endpoints.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; !isLock {
				c.queue.AddInitial(cache.MetaObjectToName(endpoints))
			}
		},
		DeleteFunc: func(obj any) {
			if endpoints, ok := ownerevents.Deleted[*v1.Endpoints](obj); ok {
				c.queue.Add(cache.MetaObjectToName(endpoints))
			}
		},
	}
}
