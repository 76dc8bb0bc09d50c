package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
)

// daemonSetHandler adds every DaemonSet that something happens to.
func (c *daemonSetController) daemonSetHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if ds, ok := obj.(*appsv1.DaemonSet); ok {
				c.queue.AddEvent(cache.MetaObjectToName(ds), isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if ds, ok := obj.(*appsv1.DaemonSet); ok {
				c.enqueue(ds)
			}
		},
		DeleteFunc: func(obj any) {
			if ds, ok := ownerevents.Deleted[*appsv1.DaemonSet](obj); ok {
				c.enqueue(ds)
			}
		},
	}
}

// revisionHandler adds the DaemonSets whose history changes, or may.
func (c *daemonSetController) revisionHandler() cache.ResourceEventHandler {
	return &ownerevents.Handler[*appsv1.ControllerRevision, *appsv1.DaemonSet]{
		Kind: kind, Owners: c.daemonSets, Selector: selectorOf, Enqueue: c.enqueue, Logger: c.logger,
	}
}

// podHandler adds the DaemonSets whose pods, or pods to be, something happens to.
func (c *daemonSetController) podHandler() cache.ResourceEventHandler {
	return &ownerevents.Handler[*v1.Pod, *appsv1.DaemonSet]{
		Kind: kind, Owners: c.daemonSets, Selector: selectorOf, Enqueue: c.enqueue, Changed: podChanged, Logger: c.logger,
	}
}

func (c *daemonSetController) enqueue(ds *appsv1.DaemonSet) { c.queue.Add(cache.MetaObjectToName(ds)) }

// podChanged tells whether a reconcile would see a difference.
func podChanged(before, after *v1.Pod) bool {
	return before.Spec.NodeName != after.Spec.NodeName || availability.Changed(before, after)
}

// selectorOf is the selector of ds; one without requirements selects nothing here.
func selectorOf(ds *appsv1.DaemonSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(ds.Spec.Selector)
}

// selectsAll tells whether the selector is there but empty. The API server
// refuses that today.
func selectsAll(ds *appsv1.DaemonSet) bool {
	return ds.Spec.Selector != nil && len(ds.Spec.Selector.MatchLabels) == 0 && len(ds.Spec.Selector.MatchExpressions) == 0
}
