package job

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// reconcile brings a Job nearer to its end. The engine's queue calls it when
// the caches hold all that the last call wrote.
func (c *jobController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	// 1. After a request whose outcome is not known, the caches may lack what it did.
	if err := c.unsure.Settle(ctx, key); err != nil {
		return work.Result{}, err
	}

	// 2. Whether there is anything to be done.
	job, exists, err := c.get(key)
	if err != nil {
		return work.Result{}, err
	}
	if !exists || jobs.Finished(job) != nil {
		c.notes.forget(key)
		c.doomed.Forget(key)
		return work.Result{}, nil
	}
	if _, external := managedElsewhere(job); external {
		return work.Result{}, nil
	}

	// 3. What no retry would make any better.
	mode := job.Spec.CompletionMode
	if mode != nil && *mode != batchv1.NonIndexedCompletion && *mode != batchv1.IndexedCompletion {
		c.control.Events.Event(job, v1.EventTypeWarning, "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
		return work.Result{}, nil
	}
	selector, err := selectorOf(job)
	if err != nil {
		c.logger.Error("Selector is invalid, nothing is done", "job", key, "err", err)
		return work.Result{}, nil
	}

	started := c.clock.Now()
	result, action, err := c.sync(ctx, key, job, selector)
	c.metrics.synced(job, action, c.clock.Since(started), err)
	return result, err
}

func (c *jobController) get(key work.ObjectName) (*batchv1.Job, bool, error) {
	obj, exists, err := c.jobs.GetByKey(key.String())
	if err != nil || !exists {
		return nil, false, err
	}
	job, ok := obj.(*batchv1.Job)
	if !ok {
		return nil, false, fmt.Errorf("get %s: store has a %T", key, obj)
	}
	return job, true, nil
}

// sync does what is to be done about a Job that has not finished, and returns
// what kind of thing that was.
func (c *jobController) sync(ctx context.Context, key work.ObjectName, job *batchv1.Job, selector labels.Selector) (
	work.Result, string, error,
) {
	// 1. How things stand.
	pods, tracked, err := c.podsOf(ctx, job, selector)
	if err != nil {
		return work.Result{}, actionReconciling, err
	}
	s := newState(job, pods, tracked, c.clock.Now())
	record, known := c.notes.backOff(key, job.UID)
	if !known {
		// As it was when the controller stopped, as far as pods tell.
		record = backOff{uid: job.UID}.after(s.counted())
	}
	record = record.by(s.now)
	c.notes.setBackOff(key, record)

	// 2. As long as the end is not decided, there are to be enough pods.
	end := s.decide()
	var due time.Duration // what becomes so without an event
	if left, limited := s.untilDeadline(); limited && end == nil {
		due = max(left, lookAgain)
	}
	var p plan
	var made managed
	manages := end == nil && job.DeletionTimestamp == nil
	action := actionReconciling
	if manages {
		p = s.plan(record.after(s.finished).by(s.now))
		due = work.Soonest(due, p.wait)
		action = actionOf(p)
		made = c.manage(ctx, key, s, p)
		if len(made.removed) > 0 && made.err == nil {
			// Only the caches can tell which of them are terminating. Of pods
			// that are gone already, an event is on its way.
			if made.found {
				return work.Result{RequeueAfter: lookAgain}, action, nil
			}
			return work.Result{RequeueAfter: due}, action, nil
		}
		if made.err == nil {
			made.err = c.trackAgain(ctx, s)
		}
		if made.err != nil && podcontrol.GivenUp(ctx, made.err) {
			return work.Result{}, action, made.err // of our own doing: nothing to tell
		}
	}
	if end == nil && s.completed(len(s.active)+made.created-len(made.removed)) {
		due = 0
		end = &outcome{reason: batchv1.JobReasonCompletionsReached, message: messageCompletions}
	}

	// 3. Pods that nobody would ever finish would keep the Job from its end.
	stuck, checkIn := s.stuck()
	due = work.Soonest(due, checkIn)
	if err := c.kill(ctx, key, job, stuck); err != nil && made.err == nil {
		made.err = err
	}

	// 4. The status, and what may be done once it is written.
	step := step{state: s, record: record, end: end, made: made, manages: manages}
	wait, err := c.report(ctx, key, &step)
	if err == nil {
		err = made.err
	}
	return work.Result{RequeueAfter: work.Soonest(wait, due)}, action, err
}

func actionOf(p plan) string {
	switch {
	case len(p.remove) > 0:
		return actionPodsDeleted
	case len(p.create) > 0:
		return actionPodsCreated
	default:
		return actionTracking
	}
}

// trackAgain gives active pods their finalizer back. They lose it when a
// removal was interrupted before the deletion, or when their owner reference
// was taken away for a moment. Without it, how they end would be lost.
func (c *jobController) trackAgain(ctx context.Context, s *state) error {
	var untracked []*v1.Pod
	for _, pod := range s.active {
		if !hasFinalizer(pod) {
			untracked = append(untracked, pod)
		}
	}
	_, err := each(untracked, func(pod *v1.Pod) error { return c.track(ctx, pod) })
	return err
}
