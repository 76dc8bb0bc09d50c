package garbagecollector

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// view is a copy of what a worker needs of a node.
type view struct {
	identity
	resource                     apischema.GroupVersionResource
	deleting, orphan, foreground bool
	// requested tells that a deletion was accepted whose event has not come yet.
	requested bool
	// dependents tells whether there are any, foregroundDependents whether one
	// of them is being deleted in the foreground itself.
	dependents, foregroundDependents bool
}

// view of an observed node; false for others.
func (g *graph) view(uid types.UID) (view, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || !n.observed {
		return view{}, false
	}
	v := view{
		identity: n.identity, resource: n.resource,
		deleting: n.deleting, orphan: n.orphan, foreground: n.foreground, requested: n.requested,
		dependents: len(n.dependents) > 0,
	}
	for _, dependent := range n.dependents {
		if dependent.foreground {
			v.foregroundDependents = true
			break
		}
	}
	return v, true
}

// dependent is a copy of what a worker needs of a dependent.
type dependent struct {
	identity
	resource apischema.GroupVersionResource
}

// blockers of an owner's foreground deletion, whether there are any, and those
// whose own deletion has not begun. An owner that refers to itself would wait
// for itself for ever.
func (g *graph) blockers(owner types.UID) (blocked bool, idle []types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[owner]
	if n == nil {
		return false, nil
	}
	for _, d := range n.dependents {
		if d == n || !d.blocks(owner) {
			continue
		}
		blocked = true
		if !d.deleting && !d.requested {
			idle = append(idle, d.uid)
		}
	}
	return blocked, idle
}

// dependents of an owner, with exceptions.
func (g *graph) dependents(owner types.UID, except map[types.UID]bool) []dependent {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[owner]
	if n == nil {
		return nil
	}
	var all []dependent
	for _, d := range n.dependents {
		if !except[d.uid] {
			all = append(all, dependent{d.identity, d.resource})
		}
	}
	return all
}

// state of an owner as a reference names it.
type state int

const (
	// unverified: only a live read can tell.
	unverified state = iota
	// absent for certain.
	absent
	// solid: it exists and stays as far as is known.
	solid
	// waiting for its dependents to go first.
	waiting
)

// owner is the state of the owner that a reference by a dependent in namespace names.
func (g *graph) owner(ref *metav1.OwnerReference, namespace string) state {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[ref.UID]
	switch {
	case n == nil:
		return unverified
	case !n.observed && n.lacks(claimOf(ref, namespace)):
		return absent
	case !n.observed || !n.matches(ref, namespace):
		return unverified
	case n.foreground:
		return waiting
	}
	return solid
}

// doubtful tells whether a claim needs to be verified: some dependent makes it
// of a UID that nobody has observed. Since is when it began to be unobserved.
func (g *graph) doubtful(claim identity) (since time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[claim.uid]
	if n == nil || n.observed || n.lacks(claim) {
		return time.Time{}, false
	}
	for _, d := range n.dependents {
		d.refersTo(claim.uid, func(ref *metav1.OwnerReference) { ok = ok || claimOf(ref, d.namespace) == claim })
		if ok {
			return n.since, true
		}
	}
	return time.Time{}, false
}

// size of the graph.
func (g *graph) size() (nodes, edges, unobserved int, observations int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.nodes {
		if !n.observed {
			unobserved++
		}
	}
	return len(g.nodes), g.edges, unobserved, g.observations
}
