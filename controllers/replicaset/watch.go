package replicaset

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
)

// objectHandler adds every object that something happens to.
func (e *engine[T]) objectHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if object, ok := obj.(T); ok {
				e.queue.AddEvent(cache.MetaObjectToName(object), isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if object, ok := obj.(T); ok {
				e.enqueue(object)
			}
		},
		DeleteFunc: func(obj any) {
			if object, ok := ownerevents.Deleted[T](obj); ok {
				e.enqueue(object)
			}
		},
	}
}

// podHandler adds the objects whose pods, or pods to be, something happens to.
func (e *engine[T]) podHandler() cache.ResourceEventHandler {
	return &ownerevents.Handler[*v1.Pod, T]{
		Kind:     e.kind.GroupVersionKind().Kind,
		Owners:   e.objects,
		Selector: e.kind.Selector,
		Enqueue:  e.enqueue,
		Changed:  availability.Changed,
		Logger:   e.logger,
	}
}

func (e *engine[T]) enqueue(object T) { e.queue.Add(cache.MetaObjectToName(object)) }
