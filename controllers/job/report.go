package job

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// step is one reconcile's work after it has dealt with the number of pods.
type step struct {
	state  *state
	record backOff
	end    *outcome
	made   managed
	// manages is true if the number of pods was looked after, whatever came of it.
	manages bool
}

// report counts pods, and brings a Job whose end is decided to it. Its requests
// come in an order that allows a crash between any two: the status that counts
// pods and announces the end, the deletion of pods that the end leaves without
// purpose, the removal of finalizers, the status that declares the Job finished.
// It returns when there is more of it to be done, 0 if that will be told by an event.
func (c *jobController) report(ctx context.Context, key work.ObjectName, step *step) (time.Duration, error) {
	s, end := step.state, step.end
	busy := s.activeIndexes()
	for _, index := range step.made.indexes {
		busy[index] = true
	}
	a := s.account(end, busy)
	changed := c.describe(&a.status, step)

	killed := s.active
	if end == nil {
		killed = nil
	}
	finishable := end != nil && len(killed) == 0 && len(s.terminating) == 0 && !a.limited
	if finishable && len(a.release) == 0 {
		if err := c.finish(ctx, key, s.job, &a.status, end); err != nil {
			return 0, err
		}
		c.metrics.counted(s, &a)
		return 0, nil
	}
	if step.onItsWay(&a, changed) {
		if pause := c.notes.pause(key, s.now); pause > 0 {
			return pause, nil
		}
	}

	written, err := c.write(ctx, s.job, &a.status)
	if err != nil {
		return 0, err
	}
	if written != s.job {
		c.notes.wrote(key, s.now)
	}
	c.notes.setBackOff(key, step.record.after(a.counted).by(s.now))
	a.counted = step.record.unseen(a.counted)
	c.metrics.counted(s, &a)
	switch changed {
	case eventSuspended:
		c.control.Events.Event(s.job, v1.EventTypeNormal, eventSuspended, "Job suspended")
	case eventResumed:
		c.control.Events.Event(s.job, v1.EventTypeNormal, eventResumed, "Job resumed")
	}
	if err := c.kill(ctx, key, s.job, killed); err != nil {
		return 0, err
	}
	found, err := c.releaseAll(ctx, a.release)
	if err != nil {
		return 0, err
	}
	switch {
	case finishable:
		return 0, c.finish(ctx, key, written, &a.status, end)
	case found && (a.limited || len(killed) > 0):
		return lookAgain, nil // else an event is on its way
	default:
		return 0, nil
	}
}

// onItsWay tells whether the status says nothing but counts that are changing,
// or nothing new at all, so that it can be put off with the finalizers that wait for it.
func (step *step) onItsWay(a *account, changed string) bool {
	job := step.state.job
	return step.end == nil && changed == "" && step.made.err == nil && !a.limited &&
		job.DeletionTimestamp == nil && job.Status.StartTime != nil &&
		(len(a.release) > 0 || !equality.Semantic.DeepEqual(&job.Status, &a.status))
}

// describe completes the status: times, numbers and conditions. It returns what
// setSuspended does.
func (c *jobController) describe(status *batchv1.JobStatus, step *step) (changed string) {
	s := step.state
	if status.StartTime == nil {
		status.StartTime = s.start
	}
	n := s.numbers(step.made.created, len(step.made.removed), readyOf(step.made.removed), step.end)
	status.Active = int32(n.active)
	status.Ready = ptr.To(int32(n.ready))
	status.Terminating = ptr.To(int32(n.terminating))
	if step.end != nil {
		appendCondition(status, step.end.target(), step.end.reason, step.end.message, s.now)
		return ""
	}
	// A Job is resumed, and its deadline runs, also while its pods are refused;
	// it is suspended once its pods are removed.
	if !step.manages || s.suspended() && step.made.err != nil {
		return ""
	}
	changed = setSuspended(status, s.suspended(), s.now)
	switch {
	case changed == eventResumed:
		status.StartTime = s.start
	case changed == eventSuspended && c.dropStartTime:
		status.StartTime = nil
	}
	return changed
}

// finish declares the Job finished: all its pods have terminated, and hold no
// finalizer any more.
func (c *jobController) finish(ctx context.Context, key work.ObjectName, job *batchv1.Job, status *batchv1.JobStatus, end *outcome) error {
	now := c.clock.Now()
	settled := settle(status, func(types.UID) bool { return false })
	appendCondition(status, end.final(), end.reason, end.message, now)
	// The API takes no finished Job without these, nor one that ended before it
	// began, whether it was suspended or the clock was set back meanwhile.
	if status.StartTime == nil && ptr.Deref(job.Spec.Completions, 1) != 0 {
		status.StartTime = ptr.To(metav1.NewTime(now))
	}
	if !end.failed {
		completed := metav1.NewTime(now)
		if status.StartTime != nil && completed.Before(status.StartTime) {
			completed = *status.StartTime
		}
		status.CompletionTime = &completed
	}
	if _, err := c.write(ctx, job, status); err != nil {
		return err
	}
	c.notes.forget(key)
	c.metrics.settled(job, settled)
	c.metrics.finished(job, end)
	if end.failed {
		c.control.Events.Event(job, v1.EventTypeWarning, end.reason, end.message)
		return nil
	}
	if wanted := job.Spec.Completions; wanted != nil && status.Succeeded > *wanted {
		c.control.Events.Event(job, v1.EventTypeWarning, "TooManySucceededPods",
			"Too many succeeded pods running after completion count reached")
	}
	c.control.Events.Event(job, v1.EventTypeNormal, "Completed", "Job completed")
	return nil
}

// write writes the status if it differs, and returns the Job as it is then.
func (c *jobController) write(ctx context.Context, job *batchv1.Job, status *batchv1.JobStatus) (*batchv1.Job, error) {
	if equality.Semantic.DeepEqual(&job.Status, status) {
		return job, nil
	}
	changed := *job // the status is a copy already, the rest stays as it is
	changed.Status = *status
	written, err := c.control.Client.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update the status of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return written, nil
}
