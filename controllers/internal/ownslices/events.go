package ownslices

import (
	"log/slog"

	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
)

// Handler tells of slices that somebody else has changed. All fields are required.
type Handler struct {
	// Manager whose slices are looked after.
	Manager string
	Tracker *Tracker
	// Initial is called for the slices of the initial list.
	Initial func(service cache.ObjectName)
	// Changed is called when a slice was made, changed, or moved to or from the
	// Service or the manager.
	Changed func(service cache.ObjectName)
	// Gone is called when a slice was deleted: its endpoints are unreachable until it is replaced.
	Gone   func(service cache.ObjectName)
	Logger *slog.Logger
}

var _ cache.ResourceEventHandler = (*Handler)(nil)

func (h *Handler) managed(slice *discovery.EndpointSlice) bool {
	return slice.Labels[discovery.LabelManagedBy] == h.Manager
}

// OnAdd implements cache.ResourceEventHandler.
func (h *Handler) OnAdd(obj any, isInInitialList bool) {
	slice, ok := obj.(*discovery.EndpointSlice)
	if !ok || !h.managed(slice) {
		return
	}
	service, ok := h.serviceOf(slice)
	switch {
	case !ok:
	case isInInitialList:
		h.Initial(service)
	case h.Tracker.Changed(service, slice):
		h.Changed(service)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *Handler) OnUpdate(oldObj, newObj any) {
	before, ok := oldObj.(*discovery.EndpointSlice)
	after, ok2 := newObj.(*discovery.EndpointSlice)
	if !ok || !ok2 || before.ResourceVersion == after.ResourceVersion || !h.managed(before) && !h.managed(after) {
		return
	}
	was, known := ServiceOf(before)
	is, named := h.serviceOf(after)
	if was != is || h.managed(before) != h.managed(after) {
		// Nothing may wait for a slice that belongs to somebody else now.
		if known {
			h.Tracker.Lost(was, before.UID)
			h.Changed(was)
		}
		if named && was != is {
			h.Changed(is)
		}
		return
	}
	if !named {
		return
	}
	// The generation tells of spec and labels only.
	if h.Tracker.Changed(is, after) || !equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) {
		h.Changed(is)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h *Handler) OnDelete(obj any) {
	slice, ok := ownerevents.Deleted[*discovery.EndpointSlice](obj)
	if !ok || !h.managed(slice) {
		return
	}
	if service, ok := h.serviceOf(slice); ok && h.Tracker.Gone(service, slice.UID) {
		h.Gone(service)
	}
}

func (h *Handler) serviceOf(slice *discovery.EndpointSlice) (cache.ObjectName, bool) {
	service, ok := ServiceOf(slice)
	if !ok {
		h.Logger.Warn("EndpointSlice has no label that names its Service",
			"slice", cache.MetaObjectToName(slice).String(), "label", discovery.LabelServiceName)
	}
	return service, ok
}
