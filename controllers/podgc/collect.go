package podgc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// pass is one look at all candidates. A pod that qualifies twice is deleted once.
type pass struct {
	*collector
	mu      sync.Mutex
	deleted map[types.UID]struct{}
}

// collect makes a pass, and comes back for the next. One kind of pod does not
// wait for the errors of another.
func (c *collector) collect(ctx context.Context, _ string) (work.Result, error) {
	p := &pass{collector: c, deleted: map[types.UID]struct{}{}}
	err := errors.Join(p.finished(ctx), p.outOfService(ctx), p.orphaned(ctx), p.unscheduled(ctx))
	now := c.clock.Now()
	c.passed.Store(&now)
	return work.Result{RequeueAfter: interval}, err
}

// finished deletes the finished pods that are too many.
func (p *pass) finished(ctx context.Context) error {
	threshold := int(p.threshold.Load())
	if threshold <= 0 {
		return nil
	}
	pods, err := candidatesOf(p.pods, finishedPods)
	if err != nil {
		return err
	}
	excess := len(pods) - threshold
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(pods, firstToGo)
	return p.delete(ctx, terminated, pods[:excess])
}

// outOfService deletes the terminating pods of nodes that will not come back.
// The cache is not enough: on a node that has come back they still run, and
// their successors would run beside them.
func (p *pass) outOfService(ctx context.Context) error {
	pods, err := candidatesOf(p.pods, boundPods)
	if err != nil {
		return err
	}
	byNode := map[string][]*v1.Pod{}
	for _, pod := range pods {
		// A node that is not there is the matter of orphaned.
		if node, err := p.nodes.Get(pod.Spec.NodeName); err == nil && outOfService(node) && !settled(pod) {
			byNode[node.Name] = append(byNode[node.Name], pod)
		}
	}
	var mu sync.Mutex
	var doomed []*v1.Pod
	err = each(ctx, slices.Collect(maps.Keys(byNode)), func(ctx context.Context, name string) error {
		node, err := p.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if notfound.ByAPIServer(err) || err == nil && !outOfService(node) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("get node %s: %w", name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		doomed = append(doomed, byNode[name]...)
		return nil
	})
	return errors.Join(err, p.delete(ctx, outOfServiceNode, doomed))
}

// orphaned deletes the pods of nodes that have been missing long enough, and
// that the API server does not know either.
func (p *pass) orphaned(ctx context.Context) error {
	over := p.quarantine.check(p.pods.ListIndexFuncValues(ownerindex.ByNode), p.missing, p.clock.Now())
	var mu sync.Mutex
	var gone []string
	var pods []*v1.Pod
	err := each(ctx, over, func(ctx context.Context, node string) error {
		_, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		switch {
		case err == nil:
			p.quarantine.end(node) // the cache does not know yet
			return nil
		case !notfound.ByAPIServer(err):
			return fmt.Errorf("get node %s: %w", node, err)
		}
		bound, err := ownerindex.OnNode(p.pods, node)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		gone, pods = append(gone, node), append(pods, bound...)
		return nil
	})
	if failed := p.delete(ctx, orphaned, pods); failed != nil {
		return errors.Join(err, failed)
	}
	for _, node := range gone {
		p.quarantine.end(node)
	}
	return err
}

// missing tells whether node is not in the cache while something is to be done
// about pods of it.
func (p *pass) missing(node string) bool {
	if _, err := p.nodes.Get(node); err == nil {
		return false
	}
	pods, err := ownerindex.OnNode(p.pods, node)
	return err == nil && slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return !settled(pod) })
}

// unscheduled deletes terminating pods that no kubelet will ever see.
func (p *pass) unscheduled(ctx context.Context) error {
	pods, err := candidatesOf(p.pods, unscheduledPods)
	if err != nil {
		return err
	}
	return p.delete(ctx, unscheduled, pods)
}

// delete deletes pods as far as that is left to do.
func (p *pass) delete(ctx context.Context, why reason, pods []*v1.Pod) error {
	left := slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return settled(pod) || p.wasDeleted(pod) })
	err := each(ctx, left, func(ctx context.Context, pod *v1.Pod) error {
		if err := p.forceDelete(ctx, why, pod); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deleted[pod.UID] = struct{}{}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete pods (%s): %w", why, err)
	}
	return nil
}

func (p *pass) wasDeleted(pod *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.deleted[pod.UID]
	return ok
}
