package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/tools/cache"
)

// quotaHandler keeps the books, and has quotas counted that are new or have
// other limits. Other changes show at the next recount.
func (c *quotaController) quotaHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if q, ok := object.(*corev1.ResourceQuota); ok {
				c.books.open(q)
				c.classify(q, isInInitialList)
			}
		},
		UpdateFunc: func(before, after any) {
			old, oldOK := before.(*corev1.ResourceQuota)
			q, ok := after.(*corev1.ResourceQuota)
			if !ok || !oldOK {
				return
			}
			switch due, charged := c.books.update(q); {
			case due:
				c.queue.AddAfter(cache.MetaObjectToName(q), gather)
			case charged:
				c.queue.AddAfter(cache.MetaObjectToName(q), landing+gather)
			}
			if !quota.Equals(old.Spec.Hard, q.Spec.Hard) {
				c.classify(q, false)
			}
		},
		DeleteFunc: func(object any) {
			if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
				c.books.close(key)
			}
		},
	}
}

// classify a quota: those whose limits are not in force, or deny everything as
// long as they are not counted, come first.
func (c *quotaController) classify(q *corev1.ResourceQuota, initial bool) {
	key := cache.MetaObjectToName(q)
	if !quota.Equals(q.Spec.Hard, q.Status.Hard) {
		c.priority.AddEvent(key, initial)
		return
	}
	var missing []corev1.ResourceName
	for name := range q.Status.Hard {
		if _, counted := q.Status.Used[name]; !counted {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		for _, e := range c.registry.List() {
			if len(e.MatchingResources(missing)) > 0 {
				c.priority.AddEvent(key, initial)
				return
			}
		}
	}
	c.queue.AddEvent(key, initial)
}
