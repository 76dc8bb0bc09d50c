package daemonset

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// plan is what a reconcile is to do.
type plan struct {
	// creations are the nodes that get a pod each.
	creations []string
	removals  []removal
	// retryAfter is when a pod that is left alone for now may have to go; 0 if there is none.
	retryAfter time.Duration
}

func (p plan) isEmpty() bool { return len(p.creations) == 0 && len(p.removals) == 0 }

// removal of a pod. node is the one that it is on or meant for.
type removal struct {
	pod  *v1.Pod
	node string
	// finished is true if the pod goes because its containers have ended.
	finished bool
}

func (p *plan) remove(node string, pods ...*v1.Pod) {
	for _, pod := range pods {
		p.removals = append(p.removals, removal{pod: pod, node: node})
	}
}

// planner decides from a survey. It is only about one moment.
type planner struct {
	survey
	version
	minReadySeconds int32
	now             time.Time
	// heldBack returns how long a failed pod on a node must stay, 0 if it may go.
	// A node whose pods fail one after the other would be kept busy otherwise.
	heldBack func(node string) time.Duration
}

func (p *planner) isAvailable(pod *v1.Pod) bool {
	return availability.IsAvailable(pod, p.minReadySeconds, p.now)
}

// settle plans what brings one pod to every node that should have one, and none
// to others, whatever version they are. With surges a node may have an old pod
// and a current one.
func (p *planner) settle(surges bool) plan {
	var made plan
	for i := range p.nodes {
		node := &p.nodes[i]
		p.repeatDeletions(node, &made)
		switch {
		case len(node.pods) == 0:
			if node.run {
				made.creations = append(made.creations, node.name)
			}
		case !node.stay:
			made.remove(node.name, node.alive()...)
		default:
			p.settleNode(node, surges, &made)
		}
	}
	for _, pod := range p.stray {
		made.remove(targetNode(pod), pod)
	}
	return made
}

// repeatDeletions of pods that would keep the place of another one for ever.
func (p *planner) repeatDeletions(node *surveyed, made *plan) {
	for _, pod := range node.pods {
		if pod.DeletionTimestamp == nil {
			continue
		}
		stuck, checkIn := podcontrol.DeletionStuck(pod, p.now)
		if stuck {
			made.remove(node.name, pod)
		}
		made.retryAfter = work.Soonest(made.retryAfter, checkIn)
	}
}

// settleNode plans for a node that has pods and may keep them.
func (p *planner) settleNode(node *surveyed, surges bool, made *plan) {
	var active []*v1.Pod
	waits := false
	for _, pod := range node.alive() {
		if pod.Status.Phase == v1.PodFailed {
			if wait := p.heldBack(node.name); wait > 0 {
				made.retryAfter = work.Soonest(made.retryAfter, wait)
				waits = true
				continue
			}
		}
		if availability.IsTerminal(pod) {
			made.removals = append(made.removals, removal{pod: pod, node: node.name, finished: true})
		} else {
			active = append(active, pod)
		}
	}
	if !surges {
		// Without an active pod those that are going, or go now, are waited for.
		made.remove(node.name, surplusOf(active)...)
		return
	}
	if len(active) == 0 {
		// What is going need not be waited for, but a failure has to be.
		if node.run && !waits {
			made.creations = append(made.creations, node.name)
		}
		return
	}
	pods := p.divide(active)
	made.remove(node.name, pods.surplus...)
	if pods.old != nil && pods.current != nil && (!availability.IsReady(pods.old) || p.isAvailable(pods.current)) {
		made.remove(node.name, pods.old)
	}
}
