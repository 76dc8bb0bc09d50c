package deployment

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

// deploymentHandler adds every Deployment that changes.
func (c *deploymentController) deploymentHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if d, ok := obj.(*appsv1.Deployment); ok {
				c.queue.AddEvent(cache.MetaObjectToName(d), isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if d, ok := obj.(*appsv1.Deployment); ok {
				c.queue.Add(cache.MetaObjectToName(d))
			}
		},
		DeleteFunc: func(obj any) {
			if d, ok := deleted[*appsv1.Deployment](obj); ok {
				c.pace.forget(d.UID)
				c.queue.Add(cache.MetaObjectToName(d))
			}
		},
	}
}

// replicaSetHandler adds the Deployments that a ReplicaSet belongs to, or may.
func (c *deploymentController) replicaSetHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			rs, ok := obj.(*appsv1.ReplicaSet)
			if !ok {
				return
			}
			if owner, controlled := ownerindex.ControllerOf(rs); controlled {
				c.addOwner(owner, isInInitialList)
			} else if rs.DeletionTimestamp == nil {
				c.addMatching(rs, isInInitialList)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok := before.(*appsv1.ReplicaSet)
			rs, ok2 := after.(*appsv1.ReplicaSet)
			if ok && ok2 {
				c.replicaSetUpdated(old, rs)
			}
		},
		DeleteFunc: func(obj any) {
			if rs, ok := deleted[*appsv1.ReplicaSet](obj); ok {
				if owner, controlled := ownerindex.ControllerOf(rs); controlled {
					c.addOwner(owner, false)
				}
			}
		},
	}
}

func (c *deploymentController) replicaSetUpdated(old, rs *appsv1.ReplicaSet) {
	if old.ResourceVersion == rs.ResourceVersion {
		return
	}
	formerOwner, wasControlled := ownerindex.ControllerOf(old)
	owner, isControlled := ownerindex.ControllerOf(rs)
	changed := formerOwner != owner || wasControlled != isControlled
	if changed && wasControlled {
		c.addOwner(formerOwner, false)
	}
	if isControlled {
		c.addOwner(owner, false)
		return
	}
	if changed || !maps.Equal(old.Labels, rs.Labels) {
		c.addMatching(rs, false)
	}
}

// podHandler wakes Deployments that wait for their old pods to be gone.
func (c *deploymentController) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		pod, ok := deleted[*corev1.Pod](obj)
		if !ok {
			return
		}
		owner, controlled := ownerindex.ControllerOf(pod)
		if !controlled {
			return
		}
		rs, ok := ownerindex.Resolve[*appsv1.ReplicaSet](c.replicaSets, replicaSetKind, owner)
		if !ok {
			return
		}
		if owner, controlled = ownerindex.ControllerOf(rs); !controlled {
			return
		}
		d, ok := ownerindex.Resolve[*appsv1.Deployment](c.deployments, deploymentKind, owner)
		if ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			c.queue.Add(cache.MetaObjectToName(d))
		}
	}}
}

// addOwner adds the Deployment that owner names, if it is one that still exists.
func (c *deploymentController) addOwner(owner ownerindex.Owner, isInInitialList bool) {
	if d, ok := ownerindex.Resolve[*appsv1.Deployment](c.deployments, deploymentKind, owner); ok {
		c.queue.AddEvent(cache.MetaObjectToName(d), isInInitialList)
	}
}

// addMatching adds the Deployments that may adopt rs.
func (c *deploymentController) addMatching(rs *appsv1.ReplicaSet, isInInitialList bool) {
	matching, err := ownerindex.Matching(c.deployments, selectorOf, metav1.Object(rs))
	if err != nil {
		c.log.Error("cannot look up the deployments that match a replica set", "replicaSet", cache.MetaObjectToName(rs), "err", err)
		return
	}
	if len(matching) > 1 {
		c.log.Warn("more than one deployment selects a replica set", "replicaSet", cache.MetaObjectToName(rs), "count", len(matching))
	}
	for _, d := range matching {
		c.queue.AddEvent(cache.MetaObjectToName(d), isInInitialList)
	}
}

// deleted returns the last known state of a deleted object.
func deleted[T any](obj any) (T, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	typed, ok := obj.(T)
	return typed, ok
}
