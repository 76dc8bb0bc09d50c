package deployment

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
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
				c.enqueue(d)
			}
		},
		DeleteFunc: func(obj any) {
			if d, ok := ownerevents.Deleted[*appsv1.Deployment](obj); ok {
				c.enqueue(d)
			}
		},
	}
}

// replicaSetHandler adds the Deployments that a ReplicaSet belongs to, or may.
func (c *deploymentController) replicaSetHandler() cache.ResourceEventHandler {
	return &ownerevents.Handler[*appsv1.ReplicaSet, *appsv1.Deployment]{
		Kind:     deploymentKind,
		Owners:   c.deployments,
		Selector: selectorOf,
		Enqueue:  c.enqueue,
		Logger:   c.log,
	}
}

// podHandler wakes Deployments that wait for their old pods to be gone.
func (c *deploymentController) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		pod, ok := ownerevents.Deleted[*corev1.Pod](obj)
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
			c.enqueue(d)
		}
	}}
}

func (c *deploymentController) enqueue(d *appsv1.Deployment) { c.queue.Add(cache.MetaObjectToName(d)) }
