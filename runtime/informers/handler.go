package informers

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// guardedHandler is what the informer knows of a controller's handler: it
// falls silent when the lease ends, and a panic fails the lease alone. Both
// objects of an update are the same one.
type guardedHandler struct {
	informer *Informer
	name     string
	handler  cache.ResourceEventHandler
}

func newGuardedHandler(i *Informer, handler cache.ResourceEventHandler) *guardedHandler {
	return &guardedHandler{informer: i, name: "event handler of " + i.shared.key.String(), handler: handler}
}

func (h *guardedHandler) OnAdd(obj any, isInInitialList bool) {
	if h.informer.silent.Load() {
		return
	}
	defer h.informer.lease.recoverPanic(h.name)
	h.handler.OnAdd(obj, isInInitialList)
}

func (h *guardedHandler) OnUpdate(oldObj, newObj any) {
	if h.informer.silent.Load() {
		return
	}
	if key, replaced := replacement(oldObj, newObj); replaced {
		h.OnDelete(cache.DeletedFinalStateUnknown{Key: key, Obj: oldObj})
		h.OnAdd(newObj, false)
		return
	}
	defer h.informer.lease.recoverPanic(h.name)
	h.handler.OnUpdate(oldObj, newObj)
}

func (h *guardedHandler) OnDelete(obj any) {
	if h.informer.silent.Load() {
		return
	}
	defer h.informer.lease.recoverPanic(h.name)
	h.handler.OnDelete(obj)
}

// replacement tells whether another object has got the key of the old one. If
// no watch was there when it was deleted and created anew, the informer, which
// goes by keys, shows that as an update.
func replacement(oldObj, newObj any) (key string, replaced bool) {
	before, err := meta.Accessor(oldObj)
	if err != nil {
		return "", false
	}
	after, err := meta.Accessor(newObj)
	if err != nil || before.GetUID() == after.GetUID() {
		return "", false
	}
	return cache.MetaObjectToName(before).String(), true
}
