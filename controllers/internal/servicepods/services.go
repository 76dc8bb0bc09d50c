package servicepods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// ServiceHandler adds every Service that something happens to.
func ServiceHandler(queue *work.Queue[work.ObjectName]) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if service, ok := obj.(*v1.Service); ok {
				queue.AddEvent(cache.MetaObjectToName(service), isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if service, ok := obj.(*v1.Service); ok {
				queue.Add(cache.MetaObjectToName(service))
			}
		},
		DeleteFunc: func(obj any) {
			if service, ok := ownerevents.Deleted[*v1.Service](obj); ok {
				queue.Add(cache.MetaObjectToName(service))
			}
		},
	}
}
