package daemonset

import (
	"context"
	"errors"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/slowstart"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// burst bounds how many pods one reconcile creates, and how many it deletes.
// The pods' events bring the key back for the rest.
const burst = 250

// outcome of what a reconcile did about pods.
type outcome struct {
	// acted is true if pods were created or deleted, which the survey does not show.
	acted bool
	err   error
}

// apply carries out a plan, as much of it as one reconcile may do.
func (c *daemonSetController) apply(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, v version, p plan,
) outcome {
	created, createErr := c.create(ctx, key, ds, v, first(p.creations, burst))
	removed, removeErr := c.remove(ctx, key, ds, first(p.removals, burst))
	return outcome{acted: created+removed > 0, err: errors.Join(createErr, removeErr)}
}

// create creates a pod for each of nodes and returns how many it did.
func (c *daemonSetController) create(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, v version, nodes []string,
) (int, error) {
	if len(nodes) == 0 || c.doomed.Has(key, ds.UID) {
		return 0, nil
	}
	newPod, err := podFor(ds, v)
	if err != nil {
		return 0, err
	}
	created, err := slowstart.Run(ctx, len(nodes), func(ctx context.Context, i int) error {
		_, err := c.control.Create(ctx, ds, newPod(nodes[i]))
		c.unsure.Note(key, err)
		c.doomed.Note(key, ds.UID, err)
		return err
	})
	if podcontrol.NamespaceTerminating(err) {
		err = nil // nobody misses the pods
	}
	return created, err
}

// remove deletes pods at once and returns how many requests did not fail.
func (c *daemonSetController) remove(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, removals []removal,
) (int, error) {
	errs := make([]error, len(removals))
	var all sync.WaitGroup
	for i := range removals {
		all.Go(func() {
			errs[i] = c.removeOne(ctx, ds, removals[i])
			c.unsure.Note(key, errs[i])
		})
	}
	all.Wait()
	removed := 0
	var failed error
	for _, err := range errs {
		switch {
		case err == nil:
			removed++
		case failed == nil:
			failed = err // the others are alike
		}
	}
	return removed, failed
}

func (c *daemonSetController) removeOne(ctx context.Context, ds *appsv1.DaemonSet, r removal) error {
	if r.finished {
		c.tellFinished(ds, r)
	}
	if err := c.control.Delete(ctx, ds, r.pod); err != nil {
		return err
	}
	if r.finished && r.pod.Status.Phase == v1.PodFailed {
		c.failures.deleted(ds, r.node)
	}
	return nil
}

func (c *daemonSetController) tellFinished(ds *appsv1.DaemonSet, r removal) {
	if r.pod.Status.Phase == v1.PodFailed {
		c.events.Eventf(ds, v1.EventTypeWarning, reasonFailedDaemonPod,
			"Found failed daemon pod %s/%s on node %s, will try to kill it", r.pod.Namespace, r.pod.Name, r.node)
		return
	}
	c.events.Eventf(ds, v1.EventTypeNormal, reasonSucceededDaemonPod,
		"Found succeeded daemon pod %s/%s on node %s, will try to delete it", r.pod.Namespace, r.pod.Name, r.node)
}
