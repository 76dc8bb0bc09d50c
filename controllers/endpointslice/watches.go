package endpointslice

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
)

// podChanged adds a Service whose pods have changed, once a batch is gathered and
// the Service has rested from its last reconcile.
func (c *sliceController) podChanged(service cache.ObjectName) {
	c.queue.AddAfter(service, max(c.batchPeriod(), c.pace.Left(service)))
}

// sliceHandler adds the Services whose slices others have changed.
func (c *sliceController) sliceHandler() cache.ResourceEventHandler {
	return &ownslices.Handler{
		Manager: manager,
		Tracker: c.tracker,
		Initial: func(cache.ObjectName) {}, // all Services are reconciled at a start
		Changed: c.sliceChanged,
		Gone:    c.queue.Add,
		Logger:  c.logger,
	}
}

func (c *sliceController) sliceChanged(service cache.ObjectName) {
	c.queue.AddAfter(service, max(changeDelay, c.batchPeriod()))
}

// nodeHandler lets the topology follow the nodes, and adds the Services whose
// endpoints wait for a node or tell its zone.
func (c *sliceController) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			node, ok := obj.(*v1.Node)
			if !ok {
				return
			}
			c.nodesQueue.AddEvent(allNodes, isInInitialList)
			if !isInInitialList {
				c.podsChangedOn(node.Name)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*v1.Node)
			after, ok2 := newObj.(*v1.Node)
			if !ok || !ok2 {
				return
			}
			moved := before.Labels[v1.LabelTopologyZone] != after.Labels[v1.LabelTopologyZone]
			if moved || counted(before) != counted(after) || !before.Status.Allocatable.Cpu().Equal(*after.Status.Allocatable.Cpu()) {
				c.nodesQueue.Add(allNodes)
			}
			if moved {
				c.podsChangedOn(after.Name)
			}
		},
		// Endpoints stay: the object of a node that lives may be deleted and made again.
		DeleteFunc: func(any) { c.nodesQueue.Add(allNodes) },
	}
}

// podsChangedOn adds the Services of all pods on a node.
func (c *sliceController) podsChangedOn(node string) {
	pods, err := ownerindex.OnNode(c.pods, node)
	if err != nil {
		c.logger.Error("Cannot look up the pods on a node", "node", node, "err", err)
		return
	}
	for _, pod := range pods {
		services, err := servicepods.Services(c.services, pod)
		if err != nil {
			c.logger.Error("Cannot tell whose endpoints a pod is among", "err", err)
			continue
		}
		for _, service := range services {
			c.podChanged(cache.MetaObjectToName(service))
		}
	}
}
