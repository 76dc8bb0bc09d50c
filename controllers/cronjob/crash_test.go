package cronjob_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// successor starts another process on the namespace, with the same clock.
func (c *cluster) successor() *cluster {
	c.t.Helper()
	next := startWith(c.t, harness.Options{Clock: c.clock, Scope: apiproxy.Scope{Namespace: c.ns}})
	next.clock = c.clock
	return next
}

// refuseStatus lets no status of a CronJob be written.
func (c *cluster) refuseStatus() {
	c.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Write() && r.Resource == cronJobResource && r.Subresource == "status"
	}, http.StatusForbidden, 0)
}

// crashAfterCreation lets the process be killed between the creation of a Job
// and the status write.
func (c *cluster) crashAfterCreation(scheduled time.Time) {
	c.t.Helper()
	c.refuseStatus()
	c.minute(1)
	harness.Eventually(c.t, soon, "the job's creation", func(ctx context.Context) error {
		jobs, err := c.jobsOf(ctx, "backup")
		if err == nil && !slices.Contains(jobs, jobName("backup", scheduled)) {
			err = fmt.Errorf("jobs %v", jobs)
		}
		return err
	})
	c.Crash()
}

func (c *cluster) nextMinute() time.Time { return c.clock.Now().Truncate(time.Minute).Add(time.Minute) }

func TestAcceptance13_AJobWhoseStatusWasLostIsKept(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	first := c.nextMinute()
	c.crashAfterCreation(first)
	if got := c.get("backup").Status; len(got.Active) > 0 {
		t.Fatalf("status %s", inJSON(got))
	}

	next := c.successor()
	next.waitForStatus("backup", first, first)
	harness.Throughout(t, aWhile, "one job", next.hasJobs("backup", first))
	if creations := next.creations(); len(creations) > 0 {
		t.Errorf("creations %v", creations)
	}
	next.noEvent("backup", "UnexpectedJob", "MissingJob")
}

// The Job of an earlier time that was lost with a crash still runs when the
// next time comes.
func TestALostJobStillForbidsAnother(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, policy(batchv1.ForbidConcurrent)))
	first := c.nextMinute()
	c.crashAfterCreation(first)
	c.clock.Step(3 * time.Minute)

	next := c.successor()
	next.waitForStatus("backup", first, first)
	next.waitForEvent("backup", "Normal", "JobAlreadyActive", "")
	harness.Throughout(t, aWhile, "one job", next.hasJobs("backup", first))
	next.end(jobName("backup", first), batchv1.JobComplete, first)
	last := c.clock.Now().Truncate(time.Minute)
	next.waitForStatus("backup", last, last)
	next.waitForJobs("backup", first, last)
}

// A Job that was lost with a crash and has ended since is not run again, even
// if no history is kept.
func TestALostJobIsNotRunAgain(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, func(cronJob *batchv1.CronJob) {
		cronJob.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](0)
	}))
	first := c.nextMinute()
	c.crashAfterCreation(first)
	end := c.end(jobName("backup", first), batchv1.JobComplete, first)

	next := c.successor()
	got := next.waitForStatus("backup", first)
	if got.Status.LastSuccessfulTime == nil || !got.Status.LastSuccessfulTime.Time.Equal(end) {
		t.Errorf("status %s", inJSON(got.Status))
	}
	next.waitForEvent("backup", "Normal", "SawCompletedJob", "Saw completed job: "+jobName("backup", first)+", condition: Complete")
	next.waitForJobs("backup")
	harness.Throughout(t, aWhile, "no job", next.hasJobs("backup"))
	if creations := next.creations(); len(creations) > 0 {
		t.Errorf("creations %v", creations)
	}
}

func TestAcceptance14_AfterAnOutageOneRunIsMadeUp(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	c.settle()
	c.controller.Stop()
	c.clock.Step(4 * time.Minute)
	last := c.clock.Now().Truncate(time.Minute)
	c.controller.Start()
	c.waitForStatus("backup", last, last)
	harness.Throughout(t, aWhile, "one job", c.hasJobs("backup", last))
}

// Two processes at once, as when the first does not know yet that it does not
// lead any more, start no Job twice.
func TestTwoProcessesStartNoJobTwice(t *testing.T) {
	t.Parallel()
	c := start(t)
	const cronJobs = 10
	name := func(i int) string { return fmt.Sprint("backup-", i) }
	for i := range cronJobs {
		c.create(newCronJob(name(i), everyMinute))
	}
	other := c.successor()
	var minutes []time.Time
	for range 3 {
		other.settle()
		minutes = append(minutes, c.minute(1))
		for i := range cronJobs {
			c.waitForStatus(name(i), minutes[len(minutes)-1], minutes...)
			c.waitForJobs(name(i), minutes...)
		}
	}
	created := 0
	for _, creation := range append(c.creations(), other.creations()...) {
		if creation.Code == http.StatusCreated {
			created++
		} else if creation.Code != http.StatusConflict {
			t.Errorf("creation answered with %d", creation.Code)
		}
	}
	if created != cronJobs*len(minutes) {
		t.Errorf("%d jobs were created, want %d", created, cronJobs*len(minutes))
	}
	for i := range cronJobs {
		c.noEvent(name(i), "UnexpectedJob", "MissingJob", "FailedCreate")
	}
}

// A process that is killed anywhere in its work leaves nothing that its
// successor does twice.
func TestASuccessorOfACrashGoesOn(t *testing.T) {
	t.Parallel()
	c := start(t)
	const cronJobs = 20
	name := func(i int) string { return fmt.Sprint("backup-", i) }
	for i := range cronJobs {
		c.create(newCronJob(name(i), everyMinute, policy(batchv1.ForbidConcurrent)))
	}
	for _, after := range []int{1, 7, 15, 30} {
		answered := make(chan struct{})
		count := make(chan int, 1)
		count <- 0
		stop := c.Proxy.After(func(r apiproxy.Request) {
			if !r.Write() || r.Resource.Group != "batch" {
				return
			}
			n := <-count + 1
			count <- n
			if n == after {
				close(answered)
			}
		})
		minute := c.minute(1)
		harness.Eventually(t, soon, "some writes", func(context.Context) error {
			select {
			case <-answered:
				return nil
			default:
				return errors.New("too few")
			}
		})
		stop()
		c.Crash()
		c = c.successor()
		for i := range cronJobs {
			c.waitForStatus(name(i), minute, minute)
			c.waitForJobs(name(i), minute)
		}
		for i := range cronJobs {
			c.deleteJob(jobName(name(i), minute))
		}
		for i := range cronJobs {
			c.waitForStatus(name(i), minute)
		}
	}
	list, err := c.client.CoreV1().Events(c.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + v1.EventTypeWarning})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("events %s, %v", inJSON(list.Items), err)
	}
}
