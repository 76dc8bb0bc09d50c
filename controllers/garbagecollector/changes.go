package garbagecollector

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// task of the queue of deletions: to examine an object whether it has to go,
// or, with a claim, to verify whether the owner that references name exists.
type task struct {
	uid   types.UID
	claim identity
}

func (t task) String() string {
	if t.claim == (identity{}) {
		return string(t.uid)
	}
	return fmt.Sprintf("owner %s %s %s/%s %s", t.claim.apiVersion, t.claim.kind, t.claim.namespace, t.claim.name, t.uid)
}

// notice is an event to record on a dependent: its reference leads to another namespace.
type notice struct {
	dependent identity
	ref       metav1.OwnerReference
}

// changes are what has to be looked at because the graph has changed.
type changes struct {
	tasks   []task
	orphans []types.UID
	notices []notice
}

func (c *changes) examine(n *node) { c.tasks = append(c.tasks, task{uid: n.uid}) }

func (c *changes) verify(claim identity) {
	c.tasks = append(c.tasks, task{uid: claim.uid, claim: claim})
}

// held are changes that wait, each once.
type held struct {
	tasks   map[task]struct{}
	orphans map[types.UID]struct{}
	notices []notice
}

func (h *held) add(c changes) {
	if h.tasks == nil {
		h.tasks, h.orphans = map[task]struct{}{}, map[types.UID]struct{}{}
	}
	for _, t := range c.tasks {
		h.tasks[t] = struct{}{}
	}
	for _, uid := range c.orphans {
		h.orphans[uid] = struct{}{}
	}
	h.notices = append(h.notices, c.notices...)
}

// take everything out.
func (h *held) take() changes {
	c := changes{notices: h.notices}
	for t := range h.tasks {
		c.tasks = append(c.tasks, t)
	}
	for uid := range h.orphans {
		c.orphans = append(c.orphans, uid)
	}
	*h = held{}
	return c
}
