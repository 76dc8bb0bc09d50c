package endpointslice

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

const (
	// allNodes is the one key of the queue of nodes.
	allNodes = "nodes"
	// byHints is the index of the Services that ask for hints by annotation.
	byHints   = "topology-hints"
	wantHints = "auto"
)

// hintIndexers are the index byHints.
func hintIndexers() cache.Indexers {
	return cache.Indexers{byHints: func(obj any) ([]string, error) {
		service, ok := obj.(*v1.Service)
		if !ok {
			return nil, fmt.Errorf("index by hints: got a %T, want a service", obj)
		}
		if wantsHints(service) {
			return []string{wantHints}, nil
		}
		return nil, nil
	}}
}

// wantsHints tells whether an annotation asks for hints by zone, see KEP-2433.
// The older annotation goes first.
func wantsHints(service *v1.Service) bool {
	mode, ok := service.Annotations[v1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		mode = service.Annotations[v1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

// counted tells whether a node's CPU counts for the share of its zone.
func counted(node *v1.Node) bool {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, ok := node.Labels[label]; ok {
			return false
		}
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// sharesOf nodes is the allocatable CPU of each zone over which endpoints can be
// spread, in thousandths; nil when a node does not say what is needed.
func sharesOf(nodes []*v1.Node) map[string]int64 {
	shares := map[string]int64{}
	for _, node := range nodes {
		if !counted(node) {
			continue
		}
		zone, cpu := node.Labels[v1.LabelTopologyZone], node.Status.Allocatable.Cpu()
		if zone == "" || cpu.IsZero() {
			return nil
		}
		shares[zone] += cpu.MilliValue()
	}
	return shares
}

// reconcileNodes tells the topology the shares of the zones, and adds the
// Services whose hints do not fit them any more, or that may get hints again.
func (c *sliceController) reconcileNodes(context.Context, string) (work.Result, error) {
	nodes, err := c.showNodes()
	if err != nil {
		return work.Result{}, err
	}
	for _, key := range c.topology.GetOverloadedServices() {
		service, err := cache.ParseObjectName(key)
		if err != nil {
			return work.Result{}, fmt.Errorf("parse the key of a service: %w", err)
		}
		c.queue.Add(service)
	}
	shares := sharesOf(nodes)
	if maps.Equal(shares, c.shares) {
		return work.Result{}, nil
	}
	c.shares = shares
	hopeful, err := c.services.IndexKeys(byHints, wantHints)
	if err != nil {
		return work.Result{}, fmt.Errorf("list the services that want hints: %w", err)
	}
	for _, key := range hopeful {
		if c.topology.HasPopulatedHints(key) {
			continue
		}
		service, err := cache.ParseObjectName(key)
		if err != nil {
			return work.Result{}, fmt.Errorf("parse the key of a service: %w", err)
		}
		c.queue.Add(service)
	}
	return work.Result{}, nil
}

// awaitNodes lets no hint be judged before the topology has seen the nodes: at a
// start all would be removed, and given again.
func (c *sliceController) awaitNodes() error {
	var err error
	c.nodesKnown.Do(func() { _, err = c.showNodes() })
	return err
}

// showNodes shows the topology all nodes.
func (c *sliceController) showNodes() ([]*v1.Node, error) {
	c.showing.Lock() // what was listed earlier must not be shown later
	defer c.showing.Unlock()
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	c.topology.SetNodes(c.logr, nodes)
	return nodes, nil
}
