package resourcequota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// uncounted resources have objects that are not kept, or not by users.
var uncounted = map[apischema.GroupResource]bool{
	{Resource: "bindings"}:                                                 true,
	{Resource: "componentstatuses"}:                                        true,
	{Resource: "events"}:                                                   true,
	{Group: "events.k8s.io", Resource: "events"}:                           true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
}

// whole are the resources of which metadata is not enough, with their indexes.
var whole = map[apischema.GroupVersionResource]cache.Indexers{
	pods:                   nil,
	services:               nil,
	persistentVolumeClaims: nil,
	resourceClaims:         resourceClaimIndexers,
	deviceClassResource:    deviceClassIndexers,
}

// wanted tells whether a resource is monitored: its objects count, or tell
// which do.
func wanted(gvr apischema.GroupVersionResource, resource discovery.Resource) bool {
	if gvr == deviceClassResource || monitors.Defines(gvr.GroupResource()) {
		return true
	}
	can := func(verb string) bool { return slices.Contains(resource.Verbs, verb) }
	return resource.Namespaced && can("create") && can("delete") && !uncounted[gvr.GroupResource()]
}

func (c *quotaController) lease(gvr apischema.GroupVersionResource) (*informers.Informer, error) {
	if gvr == quotas {
		return c.informers.Informer(gvr) // without it there is nothing to do
	}
	indexers, ok := whole[gvr]
	if !ok {
		return c.informers.Monitor(gvr)
	}
	if _, err := c.informers.Informer(gvr); err != nil {
		return nil, err
	}
	// It is the same informer, for which nothing waits while it cannot list.
	informer, err := c.informers.Monitor(gvr)
	if err != nil || len(indexers) == 0 {
		return informer, err
	}
	if err := informer.AddIndexers(indexers); err != nil {
		return nil, err
	}
	return informer, nil
}

// monitorHandler makes what a monitor shows count.
func (c *quotaController) monitorHandler(m *monitors.Monitor) cache.ResourceEventHandler {
	switch {
	case monitors.Defines(m.Resource.GroupResource()):
		return nil
	case m.Resource == deviceClassResource:
		return c.deviceClassHandler()
	}
	e := c.evaluatorFor(m)
	c.registry.Add(e)
	return objectHandler{c, e}
}

// monitorEnded lets what is not served any more count no longer.
func (c *quotaController) monitorEnded(gvr apischema.GroupVersionResource) {
	if e := c.registry.Get(gvr.GroupResource()); e != nil {
		c.registry.Remove(e)
	}
}

// monitorSynced has the quotas counted that could not be without the monitor.
func (c *quotaController) monitorSynced(m *monitors.Monitor) {
	if m.Resource == deviceClassResource {
		c.recountExtended()
		return
	}
	e := c.registry.Get(m.Resource.GroupResource())
	if e == nil {
		return
	}
	for _, a := range c.books.all() {
		if a.lacks(e) {
			c.queue.Add(a.key)
		}
	}
}

// lacks tells whether the quota limits something that e counts and has not
// been counted.
func (a *account) lacks(e quota.Evaluator) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	matched := e.MatchingResources(quota.ResourceNames(a.quota.Spec.Hard))
	return len(matched) > 0 && (a.incomplete || slices.ContainsFunc(matched, func(name corev1.ResourceName) bool {
		_, counted := a.quota.Status.Used[name]
		return !counted
	}))
}

// objectHandler tells the quotas of a namespace what happens to what they count.
type objectHandler struct {
	c *quotaController
	e quota.Evaluator
}

var _ cache.ResourceEventHandler = objectHandler{}

// OnAdd implements cache.ResourceEventHandler. What is new was charged by
// admission already, so that nothing has to be counted.
func (h objectHandler) OnAdd(object any, isInInitialList bool) {
	if !isInInitialList {
		h.landed(nil, object)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h objectHandler) OnUpdate(before, after any) {
	e, ok := h.e.(*evaluator)
	if !ok {
		return
	}
	old, oldOK := before.(runtime.Object)
	object, objectOK := after.(runtime.Object)
	if !oldOK || !objectOK || len(h.accounts(object)) == 0 {
		return
	}
	if e.grows != nil && e.grows(old, object) {
		h.landed(old, object)
	}
	if e.frees != nil && e.frees(old, object) {
		h.freed(object)
	}
	if pod, ok := object.(*corev1.Pod); ok && deletionBegan(old.(*corev1.Pod), pod) { //nolint:forcetypeassert // both are of one informer
		h.freesLater(pod)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h objectHandler) OnDelete(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	h.freed(object)
}

// accounts of the quotas that count the object.
func (h objectHandler) accounts(object any) []*account {
	o, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(h.c.books.in(o.GetNamespace()), func(a *account) bool {
		return len(h.e.MatchingResources(quota.ResourceNames(a.seen().Status.Hard))) == 0
	})
}

func (h objectHandler) freed(object any) {
	for _, a := range h.accounts(object) {
		h.c.queue.AddAfter(a.key, a.owe())
	}
}

// freesLater looks again when a pod that is being deleted is not charged any
// more, should it still be there.
func (h objectHandler) freesLater(pod *corev1.Pod) {
	at, ok := releasedAt(pod)
	if !ok {
		return
	}
	for _, a := range h.accounts(pod) {
		h.c.queue.AddAfter(a.key, at.Sub(h.c.clock.Now())+gather)
	}
}

// landed tells quotas that an object which they were charged for is there.
func (h objectHandler) landed(before, object any) {
	accounts := h.accounts(object)
	if len(accounts) == 0 {
		return
	}
	after, ok := object.(runtime.Object)
	if !ok {
		return
	}
	amount, err := h.e.Usage(after)
	if err != nil {
		return
	}
	if old, ok := before.(runtime.Object); ok {
		was, err := h.e.Usage(old)
		if err != nil {
			return
		}
		amount = risen(was, amount)
	}
	for _, a := range accounts {
		q := a.seen()
		matches, err := h.e.Matches(q, after)
		if err == nil && matches && !a.landed(quota.Mask(amount, quota.ResourceNames(q.Status.Hard))) {
			// Its charge is not known, or was taken for that of nothing and given back.
			h.c.queue.AddAfter(a.key, early)
		}
	}
}
