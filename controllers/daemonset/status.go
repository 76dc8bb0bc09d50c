package daemonset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// counts are the part of the status that this controller counts.
type counts struct {
	desired, current, misscheduled, ready, updated, available int32
	observedGeneration                                        int64
}

// count tells what there is. A node with several pods counts by the preferred one.
func (p *planner) count(ds *appsv1.DaemonSet) counts {
	c := counts{observedGeneration: ds.Generation}
	for i := range p.nodes {
		node := &p.nodes[i]
		switch {
		case !node.run:
			if len(node.pods) > 0 {
				c.misscheduled++
			}
			continue
		case len(node.pods) == 0:
			c.desired++
			continue
		}
		c.desired++
		c.current++
		pod := node.pods[0]
		if availability.IsReady(pod) {
			c.ready++
			if p.isAvailable(pod) {
				c.available++
			}
		}
		if p.isCurrent(pod) {
			c.updated++
		}
	}
	return c
}

func storedCounts(s *appsv1.DaemonSetStatus) counts {
	return counts{
		desired:            s.DesiredNumberScheduled,
		current:            s.CurrentNumberScheduled,
		misscheduled:       s.NumberMisscheduled,
		ready:              s.NumberReady,
		updated:            s.UpdatedNumberScheduled,
		available:          s.NumberAvailable,
		observedGeneration: s.ObservedGeneration,
	}
}

// into writes the counts into a status, whose other fields stay as they are.
func (c counts) into(s *appsv1.DaemonSetStatus) {
	s.DesiredNumberScheduled = c.desired
	s.CurrentNumberScheduled = c.current
	s.NumberMisscheduled = c.misscheduled
	s.NumberReady = c.ready
	s.UpdatedNumberScheduled = c.updated
	s.NumberAvailable = c.available
	s.NumberUnavailable = c.desired - c.available
	s.ObservedGeneration = c.observedGeneration
}

// complete tells whether every node that should run a pod has one that is current and available.
func (c counts) complete() bool {
	return c.current == c.desired && c.ready == c.desired && c.updated == c.desired && c.available == c.desired
}

// urgent tells whether somebody may wait for the change from before to after.
// Not urgent are counts of pods that come and go, until all are there.
func urgent(before, after counts) bool {
	onTheWay := before
	onTheWay.current, onTheWay.ready, onTheWay.updated, onTheWay.available = after.current, after.ready, after.updated, after.available
	return onTheWay != after || after.complete()
}

// report writes the status of ds if it differs from what is stored. It returns
// after which time the key must come back for what is held back.
func (c *daemonSetController) report(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, p *planner, made outcome,
) (time.Duration, error) {
	stored, counted := storedCounts(&ds.Status), p.count(ds)
	// What was created and deleted without an error is seen in a moment, and the
	// present counts are obsolete.
	obsolete := made.acted && made.err == nil

	var inOrder appsv1.DaemonSetStatus
	counted.into(&inOrder)
	if stored == counted && ds.Status.NumberUnavailable == inOrder.NumberUnavailable {
		c.held.Written(key)
		if obsolete {
			return holdback.Longest, nil
		}
		return 0, nil
	}
	if obsolete || made.err == nil && !urgent(stored, counted) {
		if wait := c.held.Wait(key, p.now); wait > 0 {
			return wait, nil
		}
	}
	if err := c.writeStatus(ctx, ds, counted); err != nil {
		return 0, fmt.Errorf("update status of %s: %w", key, err)
	}
	c.held.Written(key)
	return 0, nil
}

// writeStatus tries a second time with a fresh object when ds is out of date.
func (c *daemonSetController) writeStatus(ctx context.Context, ds *appsv1.DaemonSet, counted counts) error {
	api := c.client.AppsV1().DaemonSets(ds.Namespace)
	// Only the status is copied deeply, as nothing else is changed.
	changed := *ds
	changed.Status = *ds.Status.DeepCopy()
	counted.into(&changed.Status)
	_, err := api.UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		live, getErr := api.Get(ctx, ds.Name, metav1.GetOptions{})
		if notfound.ByAPIServer(getErr) || getErr == nil && live.UID != ds.UID {
			return nil
		}
		if getErr != nil {
			return getErr
		}
		counted.into(&live.Status)
		_, err = api.UpdateStatus(ctx, live, metav1.UpdateOptions{})
	}
	if notfound.ByAPIServer(err) {
		return nil
	}
	return err
}
