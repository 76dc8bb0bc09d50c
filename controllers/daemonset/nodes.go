package daemonset

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// changedNodes remembers the state that nodes had before they changed, until
// the change has been looked at. Nodes that did not exist are there as nil.
type changedNodes struct {
	mu     sync.Mutex
	before map[string]*v1.Node
}

func newChangedNodes() *changedNodes { return &changedNodes{before: map[string]*v1.Node{}} }

// note keeps the oldest of the states that have not been looked at.
func (c *changedNodes) note(name string, before *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, noted := c.before[name]; !noted {
		c.before[name] = before
	}
}

// take returns the state of a node before its changes, and false if there was none.
func (c *changedNodes) take(name string) (*v1.Node, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, noted := c.before[name]
	delete(c.before, name)
	return before, noted
}

// nodeHandler adds nodes that DaemonSets may judge differently. Those of the
// initial list are left out: all DaemonSets are reconciled at a start anyhow.
func (c *daemonSetController) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if node, ok := obj.(*v1.Node); ok && !isInInitialList {
				c.nodeChanged(node.Name, nil)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, ok := old.(*v1.Node)
			after, ok2 := obj.(*v1.Node)
			if ok && ok2 && !sameForPlacement(before, after) {
				c.nodeChanged(after.Name, before)
			}
		},
		DeleteFunc: func(obj any) {
			if node, ok := ownerevents.Deleted[*v1.Node](obj); ok {
				c.nodeChanged(node.Name, node)
			}
		},
	}
}

func (c *daemonSetController) nodeChanged(name string, before *v1.Node) {
	c.changed.note(name, before)
	c.nodeQueue.Add(name)
}

// reconcileNode adds the DaemonSets that judge a node differently since it has
// changed, and those that have pods on a node that has come or gone.
func (c *daemonSetController) reconcileNode(_ context.Context, name string) (work.Result, error) {
	before, changed := c.changed.take(name)
	if !changed {
		return work.Result{}, nil
	}
	after, err := get[*v1.Node](c.nodes, name)
	if err != nil {
		return work.Result{}, err
	}
	for _, obj := range c.daemonSets.List() {
		ds, ok := obj.(*appsv1.DaemonSet)
		if !ok {
			return work.Result{}, fmt.Errorf("list daemonsets: the cache holds a %T", obj)
		}
		placement := c.placementOf(ds)
		if placement.ofMaybe(before) != placement.ofMaybe(after) {
			c.enqueue(ds)
		}
	}
	if (before == nil) == (after == nil) {
		return work.Result{}, nil
	}
	pods, err := ownerindex.OnNode(c.pods, name)
	if err != nil {
		return work.Result{}, err
	}
	for _, pod := range pods {
		owner, _ := ownerindex.ControllerOf(pod)
		if ds, ok := ownerindex.Resolve[*appsv1.DaemonSet](c.daemonSets, kind, owner); ok {
			c.enqueue(ds)
		}
	}
	return work.Result{}, nil
}

// ofMaybe is of for a node that may not exist.
func (p *placement) ofMaybe(node *v1.Node) eligibility {
	if node == nil {
		return eligibility{}
	}
	return p.of(node)
}

// get returns the object of key, which must not be changed, or the zero value if there is none.
func get[T any](store cache.Indexer, key string) (T, error) {
	var none T
	obj, exists, err := store.GetByKey(key)
	if err != nil {
		return none, fmt.Errorf("look up %s: %w", key, err)
	}
	if !exists {
		return none, nil
	}
	object, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("look up %s: the cache holds a %T, want a %T", key, obj, none)
	}
	return object, nil
}
