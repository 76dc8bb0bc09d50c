package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
)

// setHandler adds every set that something happens to.
func (c *statefulSetController) setHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if set, ok := obj.(*appsv1.StatefulSet); ok {
				c.queue.AddEvent(cache.MetaObjectToName(set), isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if set, ok := obj.(*appsv1.StatefulSet); ok {
				c.enqueue(set)
			}
		},
		DeleteFunc: func(obj any) {
			if set, ok := ownerevents.Deleted[*appsv1.StatefulSet](obj); ok {
				// Another one of its name may be there when it is reconciled.
				c.metrics.forget(cache.MetaObjectToName(set))
				c.enqueue(set)
			}
		},
	}
}

// podHandler adds the sets whose pods, or pods to be, something happens to.
func (c *statefulSetController) podHandler() cache.ResourceEventHandler {
	return &podHandler{
		Handler: ownerevents.Handler[*v1.Pod, *appsv1.StatefulSet]{
			Kind:     statefulSetKind,
			Owners:   c.sets,
			Selector: selectorOf,
			Enqueue:  c.enqueue,
			Changed:  availability.Changed,
			Logger:   c.logger,
		},
		freed: func(pod *v1.Pod) {
			if parent, _, ok := splitName(pod.Name); ok {
				c.enqueueNamed(pod.Namespace, parent)
			}
		},
	}
}

// podHandler tells the set by whose scheme a pod was named that the name is
// free, whosever the pod was.
type podHandler struct {
	ownerevents.Handler[*v1.Pod, *appsv1.StatefulSet]
	freed func(*v1.Pod)
}

// OnDelete implements cache.ResourceEventHandler.
func (h *podHandler) OnDelete(obj any) {
	h.Handler.OnDelete(obj)
	if pod, ok := ownerevents.Deleted[*v1.Pod](obj); ok {
		h.freed(pod)
	}
}

// claimHandler adds the sets whose claims are deleted, or get other owners.
// That they appear matters to nobody: the set has made them itself, or does not wait for them.
func (c *statefulSetController) claimHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, ok := before.(*v1.PersistentVolumeClaim)
			claim, ok2 := after.(*v1.PersistentVolumeClaim)
			if ok && ok2 && claimChanged(old, claim) {
				c.enqueueClaimed(claim)
			}
		},
		DeleteFunc: func(obj any) {
			if claim, ok := ownerevents.Deleted[*v1.PersistentVolumeClaim](obj); ok {
				c.enqueueClaimed(claim)
			}
		},
	}
}

func claimChanged(before, after *v1.PersistentVolumeClaim) bool {
	return (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
}

// enqueueClaimed adds the set that a claim is named after. Names of templates
// and of sets may both have dashes.
func (c *statefulSetController) enqueueClaimed(claim *v1.PersistentVolumeClaim) {
	name, _, ok := splitName(claim.Name)
	if !ok {
		return
	}
	for i := range len(name) {
		if name[i] != '-' {
			continue
		}
		c.enqueueIf(claim.Namespace, name[i+1:], func(set *appsv1.StatefulSet) bool {
			return slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(template v1.PersistentVolumeClaim) bool {
				return template.Name == name[:i]
			})
		})
	}
}

// enqueueNamed adds the set of a name, if there is one.
func (c *statefulSetController) enqueueNamed(namespace, name string) {
	c.enqueueIf(namespace, name, func(*appsv1.StatefulSet) bool { return true })
}

func (c *statefulSetController) enqueueIf(namespace, name string, condition func(*appsv1.StatefulSet) bool) {
	set, err := c.get(cache.NewObjectName(namespace, name))
	if err != nil {
		c.logger.Error("Cannot look up the set of a dependant", "err", err)
		return
	}
	if set != nil && condition(set) {
		c.enqueue(set)
	}
}

func (c *statefulSetController) enqueue(set *appsv1.StatefulSet) {
	c.queue.Add(cache.MetaObjectToName(set))
}
