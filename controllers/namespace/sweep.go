package namespace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// sweepers are the resources of one namespace that are emptied at the same time.
	sweepers = 10
	// finalizerWait is how long finalizers of other controllers are expected to take.
	finalizerWait = 15 * time.Second
	// heldRecheck is how often what finalizers hold is looked at, without a whole
	// sweep, and sweepInterval how often a namespace is swept that they hold.
	heldRecheck   = 8 * time.Second
	sweepInterval = time.Minute
	// podRecheck is how often pods are looked at that need their grace period, at
	// the least: most need less than they may.
	podRecheck = 5 * time.Second
)

// sweepEarly deletes what the namespace holds now. Nothing rests on it: the
// sweep that comes when the grace period is over looks at everything again.
func (c *namespaceController) sweepEarly(ctx context.Context, n *corev1.Namespace) {
	pods, others := split(c.served())
	if pods != nil && !c.emptyPodsEarly(ctx, n, *pods) {
		return
	}
	inParallel(others, func(r resource) {
		if err := c.emptyEarly(ctx, n, r); err != nil && ctx.Err() == nil {
			c.logger.Debug("Early sweep failed, the next one will tell", "namespace", n.Name, "resource", r.name(), "err", err)
		}
	})
}

// emptyPodsEarly tells whether no pods are left.
func (c *namespaceController) emptyPodsEarly(ctx context.Context, n *corev1.Namespace, pods resource) bool {
	some, err := c.holdsAny(ctx, n, pods)
	if err == nil && some {
		if err = c.delete(ctx, n, pods, nil); err == nil {
			some, err = c.holdsAny(ctx, n, pods)
		}
	}
	if err != nil && ctx.Err() == nil {
		c.logger.Debug("Early sweep failed, the next one will tell", "namespace", n.Name, "resource", pods.name(), "err", err)
	}
	return err == nil && !some
}

// sweep deletes everything in the namespace and tells what is left. While pods
// are left, nothing else is touched.
func (c *namespaceController) sweep(ctx context.Context, n *corev1.Namespace) *findings {
	found := newFindings(c.clock.Now())
	all, unknown, unparsed := c.discover(ctx)
	found.unknown, found.unparsed = unknown, unparsed
	pods, others := split(all)
	if pods == nil && unknown != nil {
		return found // there may be pods, and they go first
	}
	if pods != nil {
		left, err := c.empty(ctx, n, *pods)
		found.add(n, *pods, left, err)
		if len(left.objects) > 0 {
			found.podsLeft = true
			return found
		}
	}
	inParallel(others, func(r resource) {
		left, err := c.empty(ctx, n, r)
		found.add(n, r, left, err)
	})
	return found
}

// inParallel calls do for each resource, some at a time, and waits for all of them.
func inParallel(all []resource, do func(resource)) {
	var workers sync.WaitGroup
	next := make(chan resource)
	for range min(sweepers, len(all)) {
		workers.Go(func() {
			for r := range next {
				do(r)
			}
		})
	}
	for _, r := range all {
		next <- r
	}
	close(next)
	workers.Wait()
}

// findings of one sweep.
type findings struct {
	now time.Time
	// unknown resources, and unparsed group versions, of discovery.
	unknown, unparsed error
	podsLeft          bool

	mu sync.Mutex
	// left are numbers of objects by resource, held numbers of objects by finalizer.
	left, held map[string]int
	kept       []resource
	failures   []error
	podFailure error
	// wait is the longest time for which what is left may need nothing but patience.
	wait time.Duration
}

func newFindings(now time.Time) *findings {
	return &findings{now: now, left: map[string]int{}, held: map[string]int{}}
}

// add what a sweep has left of a resource, or why it has failed.
func (f *findings) add(n *corev1.Namespace, r resource, left content, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && len(left.objects) > 0 {
		f.kept = append(f.kept, r)
		f.left[r.Resource+"."+r.Group] += len(left.objects)
		for finalizer, count := range left.finalizers {
			f.held[finalizer] += count
		}
		wait := f.patience(left)
		f.wait = max(f.wait, wait)
		if wait == 0 {
			err = fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %s", n.Name, r.GroupVersionResource)
		}
	}
	if err == nil {
		return
	}
	f.failures = append(f.failures, err)
	if r.GroupVersionResource == podResource {
		f.podFailure = fmt.Errorf("failed to delete pods for namespace: %s, err: %w", n.Name, err)
	}
}

// patience is how long what is left may need; 0 when it should be gone.
func (f *findings) patience(left content) time.Duration {
	if rest := left.until.Sub(f.now); !left.until.IsZero() && rest > 0 {
		return rest
	}
	if len(left.finalizers) > 0 {
		return finalizerWait
	}
	return 0
}

// clean tells that nothing is left, for certain.
func (f *findings) clean() bool {
	return f.unknown == nil && f.unparsed == nil && len(f.failures) == 0 && len(f.left) == 0
}

// err joins all that has failed; nil when there is nothing to do but wait.
func (f *findings) err() error {
	errs := []error{f.unknown, f.unparsed}
	for _, failure := range f.failures {
		if f.podFailure != nil && errors.Is(f.podFailure, failure) {
			failure = f.podFailure
		}
		errs = append(errs, failure)
	}
	return errors.Join(errs...)
}

// recheck is when to look again at what is left.
func (f *findings) recheck() time.Duration {
	seconds := int64(f.wait / time.Second)
	again := time.Duration(seconds/2+1) * time.Second
	if f.podsLeft {
		return min(again, podRecheck)
	}
	return again
}
