package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// An owner that exists without being observed, because its resource is ignored
// or cannot be watched, is looked for again after as long as it has been so.
const (
	pollMin = 500 * time.Millisecond
	pollMax = 5 * time.Minute
)

// attemptToDelete works on the queue of deletions.
func (c *collector) attemptToDelete(ctx context.Context, t task) (work.Result, error) {
	if t.claim != (identity{}) {
		return c.verify(ctx, t)
	}
	v, ok := c.graph.view(t.uid)
	switch {
	case !ok || v.requested || v.deleting && !v.foreground:
		return work.Result{}, nil
	case v.foreground:
		return work.Result{}, c.finishForeground(ctx, t, v)
	}
	s, err := c.subject(ctx, v)
	if err != nil || s == nil || s.deleting || len(s.owners) == 0 {
		return work.Result{}, err
	}
	found, err := c.judge(ctx, s)
	if err != nil {
		return work.Result{}, err
	}
	switch {
	case found.hopeless:
		return work.Result{}, nil
	case found.unknownKind:
		if !c.kinds.wait(t, found.kindsVersion) {
			c.deletes.Add(t)
		}
		return work.Result{}, nil
	case len(found.solid) > 0:
		return work.Result{}, c.removeOwners(ctx, s, found.removable())
	case len(found.released) > 0:
		// The owner's dependents were to live. What is left decides then.
		if err := c.removeOwners(ctx, s, found.released); err != nil {
			return work.Result{}, err
		}
		c.deletes.Add(t)
		return work.Result{}, nil
	case len(found.waiting) > 0 && v.dependents:
		return work.Result{}, c.deleteForWaiting(ctx, v, s)
	}
	return work.Result{}, c.delete(ctx, s, s.policy)
}

// verify whether the owner of a claim exists, and keep asking while it does
// without being observed.
func (c *collector) verify(ctx context.Context, t task) (work.Result, error) {
	since, ok := c.graph.doubtful(t.claim)
	if !ok {
		return work.Result{}, nil
	}
	ref := &metav1.OwnerReference{APIVersion: t.claim.apiVersion, Kind: t.claim.kind, Name: t.claim.name, UID: t.uid}
	found, err := c.lookUp(ctx, ref, t.claim.namespace)
	switch {
	case err != nil:
		return work.Result{}, err
	case found.unknownKind:
		if !c.kinds.wait(t, found.kindsVersion) {
			c.deletes.Add(t)
		}
		return work.Result{}, nil
	case found.hopeless || found.state == absent:
		return work.Result{}, nil
	}
	return work.Result{RequeueAfter: min(max(c.clock.Since(since), pollMin), pollMax)}, nil
}

// finishForeground removes the finalizer of an owner once nothing blocks it,
// and has what blocks it looked at otherwise.
func (c *collector) finishForeground(ctx context.Context, t task, v view) error {
	blocked, idle := c.graph.blockers(v.uid)
	for _, uid := range idle {
		c.deletes.Add(task{uid: uid})
	}
	if blocked || !c.gate.needsComplete(changes{tasks: []task{t}}) {
		return nil
	}
	if err := c.removeFinalizer(ctx, v, metav1.FinalizerDeleteDependents); err != nil {
		return fmt.Errorf("end the foreground deletion of %s %s: %w", v.kind, v.name, err)
	}
	return nil
}

// deleteForWaiting deletes an object with dependents whose owners wait for it
// in the foreground too. When one of its dependents does likewise, owners may
// go round in a circle: it then blocks nobody any more.
func (c *collector) deleteForWaiting(ctx context.Context, v view, s *subject) error {
	if v.foregroundDependents {
		unblocked, err := c.unblockOwners(ctx, s)
		switch {
		case err != nil || unblocked == nil:
			return err
		case !sameOwners(unblocked.owners, s.owners):
			c.deletes.Add(task{uid: s.uid}) // the verdict was on others
			return nil
		}
		s = unblocked
	}
	return c.delete(ctx, s, func() metav1.DeletionPropagation { return metav1.DeletePropagationForeground })
}

// sameOwners tells whether references lead to the same objects in the same order.
func sameOwners(a, b []metav1.OwnerReference) bool {
	return slices.EqualFunc(a, b, func(a, b metav1.OwnerReference) bool {
		return a.UID == b.UID && a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name
	})
}
