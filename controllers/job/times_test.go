package job_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// setBack is a clock that can be set back.
type setBack struct {
	clock.RealClock
	by *atomic.Int64
}

func (s setBack) Now() time.Time { return s.RealClock.Now().Add(-time.Duration(s.by.Load())) }

func (s setBack) Since(at time.Time) time.Duration { return s.Now().Sub(at) }

// A Job never ends before it has begun, which the API would not take.
func TestAClockThatIsSetBackLetsJobsComplete(t *testing.T) {
	t.Parallel()
	by := new(atomic.Int64)
	c := start(t, harness.Options{Clock: setBack{by: by}})
	c.create(newJob("work"))
	pods := c.waitForPods("work", 1)
	before := c.waitFor("work", "the pod", counts(1, 0, 0))
	by.Store(int64(time.Hour))
	c.succeed(pods...)
	j := c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"))
	if !j.Status.CompletionTime.Equal(before.Status.StartTime) {
		t.Errorf("started at %s, completed at %s", before.Status.StartTime, j.Status.CompletionTime)
	}
}

// A suspended Job has no start time; the API demands one of a finished Job.
func TestASuspendedJobCanComplete(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", indexed(4, 4)))
	var lower []v1.Pod
	for _, pod := range c.waitForPods("work", 4) {
		if indexOf(&pod) != "3" {
			lower = append(lower, pod)
		}
	}
	c.succeed(lower...)
	c.waitFor("work", "three successes", indexes("0-2", ""))
	c.change("work", suspend)
	c.waitFor("work", "suspension", condition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", ""))
	c.change("work", func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](3) })
	j := c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"))
	if j.Status.StartTime == nil || j.Status.Succeeded != 3 {
		t.Errorf("%s", inJSON(j.Status))
	}
}

// The deadline is kept although no pod can be created, and creation is backing off.
func TestTheDeadlineIsKeptBesideErrors(t *testing.T) {
	t.Parallel()
	clock := harness.NewClock(t, time.Now())
	c := start(t, harness.Options{Clock: clock})
	c.LimitPods("0")
	c.create(newJob("work", func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](19) }))
	var j *batchv1.Job
	harness.Eventually(t, soon, "failure", func(context.Context) error {
		// A slow machine must not make an attempt take seconds by this clock.
		if status := c.controller.Work(); status.Busy == 0 && status.Depth == 0 {
			clock.Step(500 * time.Millisecond)
		}
		j = c.get("work")
		if fault := ended(batchv1.JobFailed, "DeadlineExceeded")(j.Status); fault != "" {
			return errors.New(fault)
		}
		return nil
	})
	// The attempts are at about 0, 1, 3, 7, 15 and 31 seconds.
	if took := j.Status.Conditions[0].LastTransitionTime.Sub(j.Status.StartTime.Time); took > 30*time.Second {
		t.Errorf("failed after %s", took)
	}
}
