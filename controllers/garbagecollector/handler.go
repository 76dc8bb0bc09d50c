package garbagecollector

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// handler tells the graph what a monitor shows.
type handler struct {
	c          *collector
	resource   apischema.GroupVersionResource
	apiVersion string
	kind       string
}

var _ cache.ResourceEventHandler = handler{}

// OnAdd implements cache.ResourceEventHandler.
func (h handler) OnAdd(obj any, isInInitialList bool) {
	if o, ok := h.object(obj); ok {
		h.c.apply(h.c.graph.observe(o), isInInitialList)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h handler) OnUpdate(_, obj any) {
	if o, ok := h.object(obj); ok {
		h.c.apply(h.c.graph.observe(o), false)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h handler) OnDelete(obj any) {
	tombstone, unwatched := obj.(cache.DeletedFinalStateUnknown)
	if unwatched {
		obj = tombstone.Obj
	}
	if o, ok := h.object(obj); ok {
		h.c.apply(h.c.graph.forget(o.uid, o.resource, !unwatched), false)
	}
}

func (h handler) object(obj any) (object, bool) {
	m, err := meta.Accessor(obj)
	if err != nil {
		h.c.logger.Error("Monitor shows something that is no object", "resource", h.resource.String(), "err", err)
		return object{}, false
	}
	deleting := m.GetDeletionTimestamp() != nil
	return object{
		identity:   identity{h.apiVersion, h.kind, m.GetNamespace(), m.GetName(), m.GetUID()},
		resource:   h.resource,
		owners:     m.GetOwnerReferences(),
		deleting:   deleting,
		orphan:     deleting && slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents),
		foreground: deleting && slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents),
	}, true
}
