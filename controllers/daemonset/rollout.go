package daemonset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// bounds of a roll-out, in nodes. One of them is 0.
type bounds struct{ maxUnavailable, maxSurge int }

// boundsOf ds, whose pods are desired on so many nodes. Percentages are rounded
// up (API fields maxUnavailable and maxSurge of RollingUpdateDaemonSet). It
// fails when one is neither a number nor a percentage.
func boundsOf(ds *appsv1.DaemonSet, desired int) (bounds, error) {
	var b bounds
	rolling := ds.Spec.UpdateStrategy.RollingUpdate
	if ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || rolling == nil {
		return b, nil
	}
	var err error
	if b.maxUnavailable, err = scaled(rolling.MaxUnavailable, desired); err != nil {
		return b, fmt.Errorf("maxUnavailable of daemonset %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	if b.maxSurge, err = scaled(rolling.MaxSurge, desired); err != nil {
		return b, fmt.Errorf("maxSurge of daemonset %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	if b == (bounds{}) && desired > 0 {
		b.maxUnavailable = 1 // or the roll-out would never go on
	}
	return b, nil
}

func scaled(value *intstr.IntOrString, total int) (int, error) {
	if value == nil {
		return 0, nil
	}
	return intstr.GetScaledValueFromIntOrPercent(value, total, true)
}

// roll plans the next step of a roll-out. The survey must be settled: settle has
// nothing to do about it.
func (p *planner) roll(b bounds) plan {
	if b.maxSurge > 0 {
		return p.rollWithSurge(b.maxSurge)
	}
	return p.rollInPlace(b.maxUnavailable)
}

// rollInPlace deletes old pods, whose places settle fills later. Those that are
// no use anyhow go at once; of the available ones so many that no more than
// maxUnavailable nodes are without an available pod.
func (p *planner) rollInPlace(maxUnavailable int) plan {
	var made plan
	var candidates []removal
	unavailable := 0
	for i := range p.nodes {
		node := &p.nodes[i]
		pods := p.divide(node.alive())
		switch {
		case len(pods.surplus) > 0 || pods.old != nil && pods.current != nil:
			unavailable++ // of no certain version yet
		case pods.old == nil && pods.current == nil:
			if node.run {
				unavailable++
			}
		case pods.current != nil:
			if !p.isAvailable(pods.current) {
				unavailable++
			}
		case !p.isAvailable(pods.old):
			unavailable++
			made.remove(node.name, pods.old)
		default:
			candidates = append(candidates, removal{pod: pods.old, node: node.name})
		}
	}
	made.removals = append(made.removals, first(candidates, maxUnavailable-unavailable)...)
	return made
}

// rollWithSurge creates current pods beside old ones, on no more than maxSurge
// nodes beside those whose old pod is no use, and deletes an old pod when the
// current one is available. Old pods where no current one may be stay until as
// many other nodes have an available pod as are desired.
func (p *planner) rollWithSurge(maxSurge int) plan {
	var made plan
	var sunset []removal
	var candidates []string
	surging, available := 0, 0
	for i := range p.nodes {
		node := &p.nodes[i]
		pods := p.divide(node.alive())
		if len(pods.surplus) > 0 {
			surging++
			continue
		}
		if p.hasAvailable(pods) {
			available++
		}
		switch {
		case pods.old == nil:
			// Nothing is left to be rolled out here.
		case pods.current != nil && p.isAvailable(pods.current):
			made.remove(node.name, pods.old)
		case pods.current != nil:
			surging++
		case !p.isAvailable(pods.old) && node.run:
			made.creations = append(made.creations, node.name)
		case !p.isAvailable(pods.old):
			made.remove(node.name, pods.old)
		case node.run:
			candidates = append(candidates, node.name)
		default:
			sunset = append(sunset, removal{pod: pods.old, node: node.name})
		}
	}
	made.removals = append(made.removals, first(sunset, available-p.desired())...)
	made.creations = append(made.creations, first(candidates, maxSurge-surging)...)
	return made
}

// hasAvailable tells whether the node is served: by its old pod as long as there is one.
func (p *planner) hasAvailable(pods divided) bool {
	serving := pods.old
	if serving == nil {
		serving = pods.current
	}
	return serving != nil && p.isAvailable(serving)
}

func first[T any](of []T, count int) []T { return of[:min(max(count, 0), len(of))] }

// surges tells whether a node may have an old pod and a current one at once.
// A percentage surges already on one node, since it is rounded up.
func surges(ds *appsv1.DaemonSet) (bool, error) {
	b, err := boundsOf(ds, 1)
	return b.maxSurge > 0, err
}
