// Package ownerevents turns what happens to dependants, such as pods, into the
// owners that have to be reconciled for it.
package ownerevents

import (
	"fmt"
	"log/slog"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

// Handler is the event handler of dependants of type D for owners of type O.
// All fields but Selector and Changed are required.
//
// The controlling owner hears of each event, a former one of the loss. Of an
// orphan hear the owners that may adopt it, when it appears and when its labels
// or owner references change. The initial list is left out: all owners are
// reconciled at a start anyhow.
type Handler[D, O metav1.Object] struct {
	// Kind of the owners.
	Kind string
	// Owners is the store of the owners, indexed by ownerindex.Selectors(Selector)
	// if there is a Selector.
	Owners cache.Indexer
	// Selector of the orphans that an owner adopts. Default: nil, orphans concern nobody.
	Selector func(O) (labels.Selector, error)
	// Enqueue is called with each owner to be reconciled.
	Enqueue func(O)
	// Changed tells whether an update matters to the owner that controls the
	// dependant. Changes of owner references always do. Default: every update matters.
	Changed func(before, after D) bool
	Logger  *slog.Logger
}

var _ cache.ResourceEventHandler = (*Handler[metav1.Object, metav1.Object])(nil)

// OnAdd implements cache.ResourceEventHandler.
func (h *Handler[D, O]) OnAdd(obj any, isInInitialList bool) {
	dependant, ok := obj.(D)
	if !ok {
		h.wrongType(obj)
		return
	}
	if isInInitialList {
		return
	}
	if owner, controlled := ownerindex.ControllerOf(dependant); controlled {
		h.enqueue(owner)
	} else {
		h.enqueueMatching(dependant)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *Handler[D, O]) OnUpdate(oldObj, newObj any) {
	before, ok := oldObj.(D)
	after, ok2 := newObj.(D)
	if !ok || !ok2 {
		h.wrongType(newObj)
		return
	}
	if before.GetResourceVersion() == after.GetResourceVersion() {
		return // a resync
	}
	former, wasControlled := ownerindex.ControllerOf(before)
	owner, controlled := ownerindex.ControllerOf(after)
	moved := former != owner
	if moved && wasControlled {
		h.enqueue(former)
	}
	switch {
	case controlled && (moved || h.Changed == nil || h.Changed(before, after)):
		h.enqueue(owner)
	case !controlled && (moved || !maps.Equal(before.GetLabels(), after.GetLabels())):
		h.enqueueMatching(after)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h *Handler[D, O]) OnDelete(obj any) {
	dependant, ok := Deleted[D](obj)
	if !ok {
		h.wrongType(obj)
		return
	}
	if owner, controlled := ownerindex.ControllerOf(dependant); controlled {
		h.enqueue(owner)
	}
}

// Deleted returns the last known state of an object whose deletion OnDelete is
// told of. It may be out of date, if the deletion was missed at first.
func Deleted[T any](obj any) (T, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	object, ok := obj.(T)
	return object, ok
}

func (h *Handler[D, O]) enqueue(owner ownerindex.Owner) {
	if object, ok := ownerindex.Resolve[O](h.Owners, h.Kind, owner); ok {
		h.Enqueue(object)
	}
}

func (h *Handler[D, O]) enqueueMatching(orphan D) {
	if h.Selector == nil || orphan.GetDeletionTimestamp() != nil {
		return // nobody adopts it
	}
	matching, err := ownerindex.Matching(h.Owners, h.Selector, metav1.Object(orphan))
	if err != nil {
		h.Logger.Error("Cannot look up who may adopt an orphan", "orphan", cache.MetaObjectToName(orphan), "err", err)
		return
	}
	if len(matching) > 1 {
		h.Logger.Warn("Selectors overlap: more than one owner may adopt the same orphan",
			"kind", h.Kind, "count", len(matching), "orphan", cache.MetaObjectToName(orphan))
	}
	for _, object := range matching {
		h.Enqueue(object)
	}
}

func (h *Handler[D, O]) wrongType(obj any) {
	var want D
	h.Logger.Error("Event of an object of the wrong type", "got", typeName(obj), "want", typeName(want))
}

func typeName(obj any) string { return fmt.Sprintf("%T", obj) }
