package daemonset

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// survey is what there is of one DaemonSet on all nodes, at one moment. What is
// to be done is planned from it alone.
type survey struct {
	// nodes that exist, ordered by name, so that a repeated decision is the same.
	nodes []surveyed
	// stray pods are not bound, and meant for nodes that do not exist. Bound ones
	// are the business of whoever collects the pods of lost nodes.
	stray []*v1.Pod
}

// surveyed is one node.
type surveyed struct {
	name string
	eligibility
	// pods that are on the node or meant for it, the preferred one first.
	pods []*v1.Pod
}

// newSurvey judges nodes, which are all that exist, in any order, and divides pods among
// them. It sorts nodes; pods must not be changed as long as the survey is used.
func newSurvey(nodes []*v1.Node, of func(*v1.Node) eligibility, pods []*v1.Pod) survey {
	left := byNode(pods)
	s := survey{nodes: make([]surveyed, 0, len(nodes))}
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, node := range nodes {
		s.nodes = append(s.nodes, surveyed{name: node.Name, eligibility: of(node), pods: left[node.Name]})
		delete(left, node.Name)
	}
	for _, pods := range left {
		for _, pod := range pods {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				s.stray = append(s.stray, pod)
			}
		}
	}
	slices.SortFunc(s.stray, comparePreference)
	return s
}

// desired is how many nodes should have a pod.
func (s survey) desired() int {
	count := 0
	for i := range s.nodes {
		if s.nodes[i].run {
			count++
		}
	}
	return count
}

// alive are the pods of the node that are not being deleted, finished ones
// included. The slice must not be changed.
func (n *surveyed) alive() []*v1.Pod {
	if !slices.ContainsFunc(n.pods, isGoing) {
		return n.pods
	}
	return slices.DeleteFunc(slices.Clone(n.pods), isGoing)
}

func isGoing(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil }

// divided are the pods of a node that are not being deleted, by their version.
type divided struct {
	// current and old are the preferred pod of the current template and of
	// another one, nil if there is none.
	current, old *v1.Pod
	// more than one current or more than one old pod.
	surplus []*v1.Pod
}

func (v version) divide(pods []*v1.Pod) divided {
	var d divided
	for _, pod := range pods {
		slot := &d.old
		if v.isCurrent(pod) {
			slot = &d.current
		}
		if *slot == nil {
			*slot = pod
		} else {
			d.surplus = append(d.surplus, pod)
		}
	}
	return d
}

// surplusOf pods where one per node is allowed: all but the preferred one.
func surplusOf(pods []*v1.Pod) []*v1.Pod {
	if len(pods) < 2 {
		return nil
	}
	return pods[1:]
}
