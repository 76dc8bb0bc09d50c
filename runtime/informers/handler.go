package informers

import "k8s.io/client-go/tools/cache"

// guardedHandler is what the informer knows of a controller's handler: it
// falls silent when the lease ends, and a panic fails the lease alone.
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
