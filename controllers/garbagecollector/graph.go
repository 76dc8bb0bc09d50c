package garbagecollector

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// rememberedOrphanings is how many owners are remembered whose dependents were
// released, for those dependents that show up only afterwards.
const rememberedOrphanings = 10_000

// orphanings outlive restarts: a dependent may show up in the next life.
type orphanings struct{ *lru.Cache }

func newOrphanings() *orphanings { return &orphanings{lru.New(rememberedOrphanings)} }

// graph of owners and dependents, by UID. Event handlers change it, workers
// read it and add which owners are verified to be absent; each call takes the lock.
//
// What exists and who refers to whom is all it knows. Nothing is deleted on its
// word that an object is not there: it says so only of objects whose deletion
// was watched, or that a live read has not found.
type graph struct {
	now func() time.Time

	mu    sync.Mutex
	nodes map[types.UID]*node
	edges int
	// observations is the number of events so far.
	observations int64

	orphaned *orphanings
}

func newGraph(now func() time.Time, known *orphanings) *graph {
	return &graph{now: now, nodes: map[types.UID]*node{}, orphaned: known}
}

// observe an object that was added or changed.
func (g *graph) observe(o object) changes {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.observations++
	var c changes
	n := g.nodes[o.uid]
	if n == nil {
		n = &node{identity: o.identity}
		g.nodes[o.uid] = n
	}
	arrives := !n.observed || n.identity != o.identity
	n.identity, n.resource, n.observed, n.absent, n.requested = o.identity, o.resource, true, nil, false
	if arrives {
		g.checkDependents(n, &c)
	}
	// What is released first need not be waited for; foreground deletion follows, if it is asked for too.
	foreground := o.foreground && !o.orphan
	startsOrphan, startsForeground := o.orphan && !n.orphan, foreground && !n.foreground
	n.deleting, n.orphan, n.foreground = o.deleting, o.orphan, foreground
	g.setOwners(n, o.owners, &c)
	if startsOrphan {
		c.orphans = append(c.orphans, n.uid)
	}
	if startsForeground {
		c.examine(n)
		for _, dependent := range n.dependents {
			c.examine(dependent)
		}
	}
	return c
}

// checkDependents of a node that has just shown its identity.
func (g *graph) checkDependents(n *node, c *changes) {
	for _, dependent := range n.dependents {
		dependent.refersTo(n.uid, func(ref *metav1.OwnerReference) { g.check(n, dependent, ref, c) })
	}
}

// check a reference to an observed owner.
func (g *graph) check(owner, dependent *node, ref *metav1.OwnerReference, c *changes) {
	if owner.matches(ref, dependent.namespace) {
		return
	}
	c.examine(dependent)
	if !owner.reaches(dependent.namespace) {
		c.notices = append(c.notices, notice{dependent.identity, *ref})
	}
}

// setOwners of n to those it has now.
func (g *graph) setOwners(n *node, owners []metav1.OwnerReference, c *changes) {
	before := n.owners
	n.owners = owners
	for i := range before {
		uid := before[i].UID
		owner := g.nodes[uid]
		if owner == nil {
			continue // a second reference to a UID that is unlinked already
		}
		if owner.foreground && blocks(before, uid) && !blocks(owners, uid) {
			c.examine(owner)
		}
		if !refers(owners, uid) {
			g.unlink(n, owner)
		}
	}
	for i := range owners {
		if !known(before, &owners[i]) {
			g.link(n, &owners[i], c)
		}
	}
}

// known tells whether a reference was there before, apart from what it blocks.
func known(before []metav1.OwnerReference, ref *metav1.OwnerReference) bool {
	for i := range before {
		b := &before[i]
		if b.UID == ref.UID && b.APIVersion == ref.APIVersion && b.Kind == ref.Kind && b.Name == ref.Name {
			return true
		}
	}
	return false
}

func (g *graph) link(n *node, ref *metav1.OwnerReference, c *changes) {
	claim := claimOf(ref, n.namespace)
	owner := g.nodes[ref.UID]
	if owner == nil {
		owner = &node{identity: claim, since: g.now()}
		g.nodes[ref.UID] = owner
	}
	if _, ok := owner.dependents[n.uid]; !ok {
		if owner.dependents == nil {
			owner.dependents = map[types.UID]*node{}
		}
		owner.dependents[n.uid] = n
		g.edges++
	}
	switch {
	case owner.observed:
		g.check(owner, n, ref, c)
		if owner.foreground {
			c.examine(n)
		}
	case owner.lacks(claim):
		c.examine(n)
	default:
		c.verify(claim)
	}
}

// unlink n from an owner, which is forgotten when it was known from references only.
func (g *graph) unlink(n, owner *node) {
	if _, ok := owner.dependents[n.uid]; !ok {
		return
	}
	delete(owner.dependents, n.uid)
	g.edges--
	if len(owner.dependents) > 0 {
		return
	}
	owner.dependents = nil
	if !owner.observed {
		delete(g.nodes, owner.uid)
	}
}

// forget an object that its monitor does not show any more. Deleted means that
// its deletion was watched; otherwise it may exist, and the claims of its
// dependents have to be verified.
func (g *graph) forget(uid types.UID, resource apischema.GroupVersionResource, deleted bool) changes {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.observations++
	var c changes
	if n := g.nodes[uid]; n != nil && n.observed && n.resource == resource {
		g.remove(n, deleted, &c)
	}
	return c
}

func (g *graph) remove(n *node, deleted bool, c *changes) {
	owners := n.owners
	n.owners = nil
	for i := range owners {
		owner := g.nodes[owners[i].UID]
		if owner == nil {
			continue
		}
		if owner.foreground {
			c.examine(owner)
		}
		g.unlink(n, owner)
	}
	if len(n.dependents) == 0 {
		delete(g.nodes, n.uid)
		return
	}
	matching := func(dependent *node, ref *metav1.OwnerReference) bool {
		return deleted && n.matches(ref, dependent.namespace)
	}
	for _, dependent := range n.dependents {
		dependent.refersTo(n.uid, func(ref *metav1.OwnerReference) {
			if matching(dependent, ref) {
				c.examine(dependent)
			} else {
				c.verify(claimOf(ref, dependent.namespace))
			}
		})
	}
	n.observed, n.requested, n.since = false, false, g.now()
	n.deleting, n.orphan, n.foreground = false, false, false
	if deleted {
		n.absent = map[identity]struct{}{n.identity: {}}
	}
}

// drop the objects of a resource that keep does not accept, since their monitor has ended.
func (g *graph) drop(resource apischema.GroupVersionResource, keep func(identity) bool) changes {
	g.mu.Lock()
	defer g.mu.Unlock()
	var c changes
	for _, n := range g.nodes {
		if n.observed && n.resource == resource && !keep(n.identity) {
			g.remove(n, false, &c)
		}
	}
	return c
}

// setAbsent notes that the object of a claim was looked up and does not exist.
func (g *graph) setAbsent(claim identity) changes {
	g.mu.Lock()
	defer g.mu.Unlock()
	var c changes
	n := g.nodes[claim.uid]
	if n == nil || n.observed {
		return c // an observed one goes with the event of its deletion
	}
	if n.absent == nil {
		n.absent = map[identity]struct{}{}
	}
	n.absent[claim] = struct{}{}
	for _, dependent := range n.dependents {
		dependent.refersTo(n.uid, func(ref *metav1.OwnerReference) {
			made := claimOf(ref, dependent.namespace)
			if made == claim || made.clusterScoped() == claim {
				c.examine(dependent)
			}
		})
	}
	return c
}

// setRequested notes that the deletion of an object has been accepted. There is
// nothing more to do until the object is seen again.
func (g *graph) setRequested(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.nodes[uid]; n != nil && n.observed && !n.deleting { // otherwise it was seen already
		n.requested = true
	}
}

// setOrphaned notes that the dependents of an owner have been released.
func (g *graph) setOrphaned(owner types.UID) { g.orphaned.Add(owner, struct{}{}) }

// wasOrphaned tells whether the dependents of an owner have been released.
func (g *graph) wasOrphaned(owner types.UID) bool {
	_, ok := g.orphaned.Get(owner)
	return ok
}
