package job

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/slowstart"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// requestsAtOnce bounds how many pods are patched or deleted at the same time.
const requestsAtOnce = 50

// managed is what was done about the number of pods.
type managed struct {
	created int
	// indexes of the created pods.
	indexes []int
	removed []*v1.Pod
	// found is true if one of removed was there still, which the caches are
	// to show: others may have deleted all of them, and the caches not know yet.
	found bool
	err   error
}

// manage does what the plan says.
func (c *jobController) manage(ctx context.Context, key work.ObjectName, s *state, p plan) managed {
	switch {
	case len(p.remove) > 0:
		return c.remove(ctx, key, s.job, p.remove)
	case len(p.create) > 0:
		return c.create(ctx, key, s, p.create)
	default:
		return managed{}
	}
}

// remove gives pods up: without the finalizer first, so that they are not
// counted as failures.
func (c *jobController) remove(ctx context.Context, key work.ObjectName, job *batchv1.Job, pods []*v1.Pod) managed {
	var one atomic.Bool
	removed, err := each(pods, func(pod *v1.Pod) error {
		if hasFinalizer(pod) {
			found, err := c.release(ctx, pod)
			if err != nil || !found {
				return err
			}
			one.Store(true)
		}
		return c.delete(ctx, key, job, pod)
	})
	return managed{removed: removed, found: one.Load(), err: err}
}

// kill deletes pods as they are: the active ones of a Job that has come to its
// end, and those whose deletion has come to a halt.
func (c *jobController) kill(ctx context.Context, key work.ObjectName, job *batchv1.Job, pods []*v1.Pod) error {
	_, err := each(pods, func(pod *v1.Pod) error { return c.delete(ctx, key, job, pod) })
	return err
}

func (c *jobController) delete(ctx context.Context, key work.ObjectName, job *batchv1.Job, pod *v1.Pod) error {
	err := c.control.Delete(ctx, job, pod)
	c.unsure.Note(key, err)
	return err
}

// create creates the planned pods, as many as the API server takes.
func (c *jobController) create(ctx context.Context, key work.ObjectName, s *state, planned []creation) managed {
	if c.doomed.Has(key, s.job.UID) {
		return managed{}
	}
	pod, err := newPods(s.job, s.indexed, s.perIndex)
	if err != nil {
		return managed{err: err}
	}
	done := make([]bool, len(planned))
	created, err := slowstart.Run(ctx, len(planned), func(ctx context.Context, i int) error {
		_, err := c.control.Create(ctx, s.job, pod(planned[i]))
		c.unsure.Note(key, err)
		if !podcontrol.NamespaceTerminating(err) {
			c.metrics.created(s, planned[i], err)
		}
		done[i] = err == nil
		return err
	})
	made := managed{created: created, err: err}
	for i := range planned {
		if done[i] {
			made.indexes = append(made.indexes, planned[i].index)
		}
	}
	c.doomed.Note(key, s.job.UID, err)
	if podcontrol.NamespaceTerminating(err) {
		made.err = nil
	}
	return made
}

// each calls do for all pods, several at once, and returns those it succeeded
// for and the first error in the order of pods.
func each(pods []*v1.Pod, do func(*v1.Pod) error) ([]*v1.Pod, error) {
	errs := make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(requestsAtOnce)
	for i, pod := range pods {
		group.Go(func() error {
			errs[i] = do(pod)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	var done []*v1.Pod
	var failed error
	for i, err := range errs {
		switch {
		case err == nil:
			done = append(done, pods[i])
		case failed == nil:
			failed = err
		}
	}
	return done, failed
}
