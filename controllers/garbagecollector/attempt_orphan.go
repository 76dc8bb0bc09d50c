package garbagecollector

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// parallelReleases of the dependents of one owner.
const parallelReleases = 20

// attemptToOrphan works on the queue of owners that are being deleted without
// their dependents: these are released first, then the owner may go.
func (c *collector) attemptToOrphan(ctx context.Context, owner types.UID) (work.Result, error) {
	v, ok := c.graph.view(owner)
	if !ok || !v.orphan {
		return work.Result{}, nil
	}
	if !c.gate.needsComplete(changes{orphans: []types.UID{owner}}) {
		return work.Result{}, nil
	}
	released := map[types.UID]bool{}
	for {
		dependents := c.graph.dependents(owner, released)
		if len(dependents) == 0 {
			break // none has come up meanwhile
		}
		if err := c.release(ctx, owner, dependents); err != nil {
			return work.Result{}, fmt.Errorf("release the dependents of %s %s: %w", v.kind, v.name, err)
		}
		for _, d := range dependents {
			released[d.uid] = true
		}
	}
	// A dependent that shows up only when the owner is gone is released as well.
	c.graph.setOrphaned(owner)
	if err := c.removeFinalizer(ctx, v, metav1.FinalizerOrphanDependents); err != nil {
		return work.Result{}, fmt.Errorf("let %s %s go without its dependents: %w", v.kind, v.name, err)
	}
	return work.Result{}, nil
}

// release dependents from their owner.
func (c *collector) release(ctx context.Context, owner types.UID, dependents []dependent) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReleases)
	for _, d := range dependents {
		group.Go(func() error {
			s, err := c.subject(ctx, view{identity: d.identity, resource: d.resource})
			if err != nil || s == nil {
				return err
			}
			return c.removeOwners(ctx, s, []types.UID{owner})
		})
	}
	return group.Wait()
}
