package endpointslicemirroring

import (
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
)

// mirrorable tells whether Endpoints are wanted in slices: they do not opt out
// and are no lock of a leader election.
func mirrorable(endpoints *v1.Endpoints) bool {
	_, isLock := endpoints.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !isLock && endpoints.Labels[discovery.LabelSkipMirror] != "true"
}

// endpointsHandler adds Endpoints that are or were mirrored.
func (c *mirrorController) endpointsHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if endpoints, ok := obj.(*v1.Endpoints); ok && mirrorable(endpoints) {
				c.queue.AddEvent(cache.MetaObjectToName(endpoints), isInInitialList)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*v1.Endpoints)
			after, ok2 := newObj.(*v1.Endpoints)
			if ok && ok2 && (mirrorable(before) || mirrorable(after)) {
				c.queue.Add(cache.MetaObjectToName(after))
			}
		},
		DeleteFunc: func(obj any) {
			if endpoints, ok := ownerevents.Deleted[*v1.Endpoints](obj); ok && mirrorable(endpoints) {
				c.queue.Add(cache.MetaObjectToName(endpoints))
			}
		},
	}
}

// serviceHandler adds Services that come and go without a selector, or begin or
// cease to have one.
func (c *mirrorController) serviceHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if service, ok := obj.(*v1.Service); ok && service.Spec.Selector == nil {
				c.queue.AddEvent(cache.MetaObjectToName(service), isInInitialList)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*v1.Service)
			after, ok2 := newObj.(*v1.Service)
			if ok && ok2 && (before.Spec.Selector == nil) != (after.Spec.Selector == nil) {
				c.queue.Add(cache.MetaObjectToName(after))
			}
		},
		DeleteFunc: func(obj any) {
			if service, ok := ownerevents.Deleted[*v1.Service](obj); ok && service.Spec.Selector == nil {
				c.queue.Add(cache.MetaObjectToName(service))
			}
		},
	}
}

// sliceHandler adds what others have done to slices, and at a start all slices:
// what they mirror may be gone.
func (c *mirrorController) sliceHandler() cache.ResourceEventHandler {
	return &ownslices.Handler{
		Manager: manager,
		Tracker: c.tracker,
		Initial: c.queue.AddInitial,
		Changed: c.sliceChanged,
		Gone:    c.sliceChanged,
		Logger:  c.logger,
	}
}

func (c *mirrorController) sliceChanged(service cache.ObjectName) {
	if batch := time.Duration(c.batch.Load()); batch > 0 {
		c.queue.AddAfter(service, batch)
		return
	}
	c.queue.Add(service)
}
