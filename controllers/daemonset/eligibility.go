package daemonset

import (
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// eligibility is whether a node should have a pod of a DaemonSet. The zero
// value stands for a node that does not exist.
type eligibility struct {
	// run is true if there should be a pod.
	run bool
	// stay is true if a pod that is there already may stay, as after a
	// NoSchedule taint. What should run may stay.
	stay bool
}

// placement is what a DaemonSet's template demands of a node, parsed once for
// all nodes.
type placement struct {
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []v1.Toleration
	// numeric lets tolerations compare numbers, see the feature gate
	// TaintTolerationComparisonOperators.
	numeric bool
	logger  logr.Logger
}

func (c *daemonSetController) placementOf(ds *appsv1.DaemonSet) placement {
	spec := &ds.Spec.Template.Spec
	return placement{
		nodeName:    spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: withDaemonTolerations(spec.Tolerations, spec.HostNetwork),
		numeric:     c.numericTolerations,
		logger:      logr.FromSlogHandler(c.logger.Handler()),
	}
}

// of judges a node by its name, its labels and its taints, not by its
// readiness or its resources: daemons belong to the node, whatever its state.
func (p *placement) of(node *v1.Node) eligibility {
	if p.nodeName != "" && p.nodeName != node.Name {
		return eligibility{}
	}
	// An error stands for a term that matches no node. Another term may match.
	if matches, _ := p.affinity.Match(node); !matches {
		return eligibility{}
	}
	if p.tolerates(node, keepsPodsAway) {
		return eligibility{run: true, stay: true}
	}
	return eligibility{stay: p.tolerates(node, evictsPods)}
}

func (p *placement) tolerates(node *v1.Node, effect func(*v1.Taint) bool) bool {
	if len(node.Spec.Taints) == 0 {
		return true
	}
	_, untolerated := schedulingv1.FindMatchingUntoleratedTaint(p.logger, node.Spec.Taints, p.tolerations, effect, p.numeric)
	return !untolerated
}

func keepsPodsAway(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}

func evictsPods(taint *v1.Taint) bool { return taint.Effect == v1.TaintEffectNoExecute }

// sameForPlacement tells whether no DaemonSet can judge the two states of a
// node differently, as is so with heartbeats.
func sameForPlacement(before, after *v1.Node) bool {
	return equality.Semantic.DeepEqual(before.Labels, after.Labels) &&
		equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

// daemonTolerations are the taints that tell of a node's condition. A daemon
// is to be there all the same.
var daemonTolerations = []v1.Toleration{
	{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
	{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
	{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
	{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
	{Key: v1.TaintNodePIDPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
	{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
}

// networkToleration is for pods that do not need the pod network.
var networkToleration = v1.Toleration{
	Key: v1.TaintNodeNetworkUnavailable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule,
}

// withDaemonTolerations returns a template's tolerations and those that every
// daemon has. One of the template with the same key, operator, effect and value
// is replaced: its tolerationSeconds would let the pod be evicted.
func withDaemonTolerations(template []v1.Toleration, hostNetwork bool) []v1.Toleration {
	all := append(make([]v1.Toleration, 0, len(template)+len(daemonTolerations)+1), template...)
	for _, toleration := range daemonTolerations {
		all = withToleration(all, toleration)
	}
	if hostNetwork {
		all = withToleration(all, networkToleration)
	}
	return all
}

// withToleration changes all.
func withToleration(all []v1.Toleration, toleration v1.Toleration) []v1.Toleration {
	for i := range all {
		if all[i].MatchToleration(&toleration) {
			all[i] = toleration
			return all
		}
	}
	return append(all, toleration)
}
