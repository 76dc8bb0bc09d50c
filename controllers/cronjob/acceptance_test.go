package cronjob_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const everyMinute = "* * * * *"

func TestAcceptance01_AJobIsCreatedAtEachFullMinute(t *testing.T) {
	t.Parallel()
	c := start(t)
	cronJob := c.create(newCronJob("backup", everyMinute))
	c.waitForJobs("backup")
	first := c.minute(1)
	c.waitForJobs("backup", first)
	got := c.waitForStatus("backup", first, first)
	second := c.minute(1)
	c.waitForJobs("backup", first, second)
	c.waitForStatus("backup", second, first, second)

	job, err := c.client.BatchV1().Jobs(c.ns).Get(t.Context(), jobName("backup", first), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref := metav1.GetControllerOf(job)
	if ref == nil || ref.APIVersion != "batch/v1" || ref.Kind != "CronJob" || ref.UID != cronJob.UID || !ptr.Deref(ref.BlockOwnerDeletion, false) {
		t.Errorf("owner %+v", ref)
	}
	if job.Labels["app"] != "backup" || job.Annotations["note"] != "kept" || len(job.Annotations) != 2 ||
		job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] != first.UTC().Format("2006-01-02T15:04:05Z") {
		t.Errorf("labels %v, annotations %v", job.Labels, job.Annotations)
	}
	if ref := got.Status.Active[0]; ref.Kind != "Job" || ref.APIVersion != "batch/v1" || ref.Namespace != c.ns || ref.UID != job.UID ||
		ref.ResourceVersion == "" {
		t.Errorf("active %+v", ref)
	}
	c.waitForEvent("backup", "Normal", "SuccessfulCreate", "Created job "+job.Name)

	harness.Eventually(t, soon, "the metrics", func(context.Context) error {
		families, err := c.controller.Metrics.Gather()
		if err != nil {
			return err
		}
		var found string
		for _, family := range families {
			histogram := family.GetMetric()[0].GetHistogram()
			found += fmt.Sprintf("%s %d %d", family.GetName(), len(histogram.GetBucket()), histogram.GetSampleCount())
		}
		if want := "cronjob_controller_job_creation_skew_duration_seconds 10 2"; found != want {
			return fmt.Errorf("%q, want %q", found, want)
		}
		return nil
	})
}

// With the real clock a Job comes when its time does.
func TestAcceptance01_JobsAreInTime(t *testing.T) {
	t.Parallel()
	c := startWith(t, harness.Options{})
	created := c.createPlain(newCronJob("backup", "@every 3s"))
	var job *batchv1.Job
	harness.Eventually(t, soon, "a job", func(ctx context.Context) error {
		list, err := c.client.BatchV1().Jobs(c.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if job == nil || list.Items[i].CreationTimestamp.Before(&job.CreationTimestamp) {
				job = &list.Items[i]
			}
		}
		if job == nil {
			return errors.New("none")
		}
		return nil
	})
	due, err := time.Parse(time.RFC3339, job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"])
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine may have missed the first time; the last one counts then.
	if since := due.Sub(created.CreationTimestamp.Time); since <= 0 || since%(3*time.Second) != 0 {
		t.Errorf("the job is of a time %s after the creation of its CronJob", since)
	}
	creation := c.creations()[0]
	if early := due.Sub(creation.At); early > 0 {
		t.Errorf("the job was created %s before its time", early)
	}
}

func TestAcceptance02_ACompletedJobIsTakenOffTheActiveOnes(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	name := jobName("backup", first)
	end := c.end(name, batchv1.JobComplete, first)
	got := c.waitForStatus("backup", first)
	if got.Status.LastSuccessfulTime == nil || !got.Status.LastSuccessfulTime.Time.Equal(end) {
		t.Errorf("last success %s, want %s", got.Status.LastSuccessfulTime, end)
	}
	c.waitForEvent("backup", "Normal", "SawCompletedJob", "Saw completed job: "+name+", condition: Complete")

	second := c.minute(1)
	c.waitForStatus("backup", second, second)
	c.end(jobName("backup", second), batchv1.JobFailed, second)
	got = c.waitForStatus("backup", second)
	if !got.Status.LastSuccessfulTime.Time.Equal(end) {
		t.Errorf("a failed job counts as a success: %s", got.Status.LastSuccessfulTime)
	}
	c.waitForEvent("backup", "Normal", "SawCompletedJob", "Saw completed job: "+jobName("backup", second)+", condition: Failed")
}

func TestAcceptance03_AllowedJobsRunSideBySide(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, policy(batchv1.AllowConcurrent)))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	second := c.minute(1)
	c.waitForStatus("backup", second, first, second)
}

func TestAcceptance04_ForbiddenJobStartsWhenTheOtherHasEnded(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, policy(batchv1.ForbidConcurrent)))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	for range 2 {
		c.minute(1)
		c.waitForEvent("backup", "Normal", "JobAlreadyActive",
			"Not starting job because prior execution is running and concurrency policy is Forbid")
		harness.Throughout(t, aWhile, "one job", c.hasJobs("backup", first))
	}
	third := first.Add(2 * time.Minute)
	c.clock.Step(20 * time.Second)
	c.end(jobName("backup", first), batchv1.JobComplete, first)
	c.waitForStatus("backup", third, third)
	c.waitForJobs("backup", first, third)
}

func TestAcceptance05_ForbiddenJobMayMissItsDeadline(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, policy(batchv1.ForbidConcurrent), deadline(10)))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	second := c.minute(1)
	c.waitForEvent("backup", "Normal", "JobAlreadyActive", "")
	c.settle()
	c.clock.Step(20 * time.Second)
	c.end(jobName("backup", first), batchv1.JobComplete, first)
	c.waitForStatus("backup", first)
	c.waitForEvent("backup", "Warning", "MissSchedule", "Missed scheduled time to start a job: "+second.UTC().Format(time.RFC1123Z))
	harness.Throughout(t, aWhile, "no make-up run", c.hasJobs("backup", first))
	third := c.minute(1)
	c.waitForStatus("backup", third, third)
	c.waitForJobs("backup", first, third)
}

func TestAcceptance06_AJobIsReplaced(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, policy(batchv1.ReplaceConcurrent)))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	second := c.minute(1)
	c.waitForStatus("backup", second, second)
	c.waitForJobs("backup", second)
	c.waitForEvent("backup", "Normal", "SuccessfulDelete", "Deleted job "+jobName("backup", first))
	c.noEvent("backup", "MissingJob", "UnexpectedJob")
}

// While the old Job cannot be deleted, no new one is started.
func TestJobIsNotReplacedByTwo(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, policy(batchv1.ReplaceConcurrent)))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	allow := c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Resource == jobResource }, http.StatusForbidden, 0)
	second := c.minute(1)
	c.waitForEvent("backup", "Warning", "FailedDelete", "Deleted job: ")
	harness.Throughout(t, aWhile, "the old job alone", c.hasJobs("backup", first))
	allow()
	c.waitForStatus("backup", second, second)
}

func TestAcceptance07_TheLastMissedTimeRunsWhenNoLongerSuspended(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, suspended))
	c.minute(1)
	second := c.minute(1)
	harness.Throughout(t, aWhile, "no jobs", c.hasJobs("backup"))
	c.patch("backup", `{"spec":{"suspend":false}}`)
	c.waitForStatus("backup", second, second)
	c.waitForJobs("backup", second)
}

func TestAcceptance08_HistoryIsLimited(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute, func(cronJob *batchv1.CronJob) {
		cronJob.Spec.SuccessfulJobsHistoryLimit, cronJob.Spec.FailedJobsHistoryLimit = ptr.To[int32](1), ptr.To[int32](0)
	}))
	// The one that began last is kept, whatever its name.
	var minutes []time.Time
	for range 3 {
		minute := c.minute(1)
		c.waitForStatus("backup", minute, append(minutes, minute)...)
		minutes = append(minutes, minute)
	}
	for i, began := range []time.Duration{2, 3, 1} {
		c.end(jobName("backup", minutes[i]), batchv1.JobComplete, minutes[i].Add(began*time.Hour))
	}
	c.waitForStatus("backup", minutes[2])
	c.waitForJobs("backup", minutes[1])
	c.waitForEvent("backup", "Normal", "SuccessfulDelete", "Deleted job "+jobName("backup", minutes[0]))

	failing := c.minute(1)
	c.waitForStatus("backup", failing, failing)
	c.end(jobName("backup", failing), batchv1.JobFailed, failing)
	c.waitForStatus("backup", failing)
	c.waitForJobs("backup", minutes[1])
}

func TestAcceptance09_OfManyMissedTimesOneIsMadeUp(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", "*/1 * * * *", policy(batchv1.ForbidConcurrent), suspended))
	c.setLast("backup", c.clock.Now().AddDate(0, 0, -98))
	c.patch("backup", `{"spec":{"suspend":false}}`)
	now := c.clock.Now().Truncate(time.Minute)
	c.waitForStatus("backup", now, now)
	c.waitForEvent("backup", "Warning", "TooManyMissedTimes",
		"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	harness.Throughout(t, aWhile, "one job", c.hasJobs("backup", now))
}

func TestAcceptance10_TimeZonesAreHeeded(t *testing.T) {
	t.Parallel()
	c := start(t)
	const zone = "America/New_York"
	newYork, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	due := c.clock.Now().Truncate(time.Minute).Add(time.Minute).In(newYork)
	c.create(newCronJob("backup", fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour()), func(cronJob *batchv1.CronJob) {
		cronJob.Spec.TimeZone = ptr.To(zone)
	}))
	c.minute(1)
	c.waitForStatus("backup", due, due)
	job, err := c.client.BatchV1().Jobs(c.ns).Get(t.Context(), jobName("backup", due), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]; got != due.Format(time.RFC3339) {
		t.Errorf("annotation %s, want %s", got, due.Format(time.RFC3339))
	}
	_, err = c.client.BatchV1().CronJobs(c.ns).Create(t.Context(), newCronJob("nowhere", everyMinute, func(cronJob *batchv1.CronJob) {
		cronJob.Spec.TimeZone = ptr.To("No/Where")
	}), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("an unknown zone was answered with %v", err)
	}
}

func TestAcceptance11_AJobThatIsGoneIsMissed(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	c.deleteJob(jobName("backup", first))
	c.waitForStatus("backup", first)
	c.waitForEvent("backup", "Normal", "MissingJob", "Active job went missing: "+jobName("backup", first))
}

// A 404 of something before the API server does not take a Job for missing,
// which with the policy Forbid would let a second one run beside it.
func TestOnlyTheAPIServerKnowsThatAJobIsMissing(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	gets := func(r apiproxy.Request) bool {
		return r.Verb == "get" && r.Resource == jobResource && r.Name == jobName("backup", first)
	}
	stop := c.Proxy.Answer(gets, http.StatusNotFound, 0)
	c.deleteJob(jobName("backup", first))
	harness.Eventually(t, soon, "a second question", func(context.Context) error {
		if len(c.Proxy.Requests(gets)) < 2 {
			return errors.New("not so far")
		}
		return nil
	})
	c.waitForStatus("backup", first, first)
	stop()
	c.waitForStatus("backup", first)
}

func TestAcceptance12_ANameThatIsTakenCostsOneRun(t *testing.T) {
	t.Parallel()
	c := start(t)
	cronJob := c.create(newCronJob("backup", everyMinute))
	last := c.clock.Now().Truncate(time.Minute)
	taken := last.Add(time.Minute)
	theirs := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobName("backup", taken)}, Spec: cronJob.Spec.JobTemplate.Spec}
	if _, err := c.client.BatchV1().Jobs(c.ns).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.minute(1)
	harness.Eventually(t, soon, "an attempt", func(context.Context) error {
		if len(c.creations()) == 0 {
			return errors.New("none")
		}
		return nil
	})
	c.waitForStatus("backup", last)
	c.noEvent("backup", "FailedCreate", "SuccessfulCreate", "UnexpectedJob")
	harness.Throughout(t, aWhile, "one attempt", func(context.Context) error {
		if creations := c.creations(); len(creations) != 1 {
			return fmt.Errorf("%d", len(creations))
		}
		return nil
	})
	next := c.minute(1)
	c.waitForStatus("backup", next, next)
}

func TestAcceptance15_AChangedScheduleCounts(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", "0 0 1 1 *"))
	c.minute(1)
	c.settle()
	c.patch("backup", `{"spec":{"schedule":"* * * * *"}}`)
	// What would have been due before the change is no reason to start one.
	harness.Throughout(t, aWhile, "no jobs", c.hasJobs("backup"))
	c.heard() // or the change would be one of the minute after
	next := c.minute(1)
	c.waitForStatus("backup", next, next)
	c.waitForJobs("backup", next)

	c.patch("backup", `{"spec":{"schedule":"0 0 1 1 *"}}`)
	c.minute(2)
	harness.Throughout(t, aWhile, "no more jobs", c.hasJobs("backup", next))
}

func TestAcceptance16_JobsOfOthersAreUnexpected(t *testing.T) {
	t.Parallel()
	c := start(t)
	cronJob := c.create(newCronJob("backup", everyMinute))
	last := c.clock.Now().Truncate(time.Minute)
	byHand := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(cronJob, batchv1.SchemeGroupVersion.WithKind("CronJob"))}},
		Spec: cronJob.Spec.JobTemplate.Spec,
	}
	if _, err := c.client.BatchV1().Jobs(c.ns).Create(t.Context(), byHand, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitForEvent("backup", "Warning", "UnexpectedJob", "Saw a job that the controller did not create or forgot: by-hand")
	c.waitForStatus("backup", last)
	// Its success counts all the same.
	end := c.end("by-hand", batchv1.JobComplete, last)
	harness.Eventually(t, soon, "last success", func(context.Context) error {
		if got := c.get("backup").Status.LastSuccessfulTime; got == nil || !got.Time.Equal(end) {
			return fmt.Errorf("%s, want %s", got, end)
		}
		return nil
	})
}

func TestAcceptance17_ATerminatingNamespaceIsNoFailure(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	c.waitForEvent("backup", "Normal", "SuccessfulCreate", "")
	c.Terminate(c.ns)
	c.Proxy.Forget()
	c.minute(1)
	harness.Eventually(t, soon, "a refusal", func(context.Context) error {
		if len(c.creations()) == 0 {
			return errors.New("none")
		}
		return nil
	})
	harness.Throughout(t, aWhile, "one refused creation and no event", func(context.Context) error {
		if creations := c.creations(); len(creations) != 1 || creations[0].Code != http.StatusForbidden {
			return fmt.Errorf("creations %v", creations)
		}
		events := c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource.Resource == "events" })
		if len(events) > 0 {
			return fmt.Errorf("events %v", events)
		}
		return nil
	})
}

func TestAcceptance18_AScheduleThatIsNeverDueIsInvalid(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.createPlain(newCronJob("backup", "59 23 31 2 *"))
	c.waitForEvent("backup", "Warning", "InvalidSchedule",
		"invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second")
	c.create(newCronJob("other", "0 0 1 1 *"))
	c.patch("other", `{"spec":{"schedule":"59 23 31 2 *"}}`)
	c.waitForEvent("other", "Warning", "InvalidSchedule", "")
	c.settle()
	c.Proxy.Forget()
	c.clock.Step(time.Hour)
	harness.Throughout(t, aWhile, "peace", func(context.Context) error {
		if status := c.controller.Work(); status.Busy > 0 || status.Depth > 0 {
			return fmt.Errorf("work %+v", status)
		}
		if requests := c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Write() && r.Resource.Resource != "leases" }); len(requests) > 0 {
			return fmt.Errorf("requests %v", requests)
		}
		return nil
	})
}

func TestAcceptance19_JobsGoWithTheirCronJob(t *testing.T) {
	t.Parallel()
	_, err := controlplane.Shared(t).StartPeer(t.Context(), controlplane.PeerOptions{
		Controllers: []string{"garbage-collector-controller"},
		Args:        []string{"--leader-elect=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	creations := len(c.creations())
	foreground := metav1.DeletePropagationForeground
	if err := c.client.BatchV1().CronJobs(c.ns).Delete(t.Context(), "backup", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	c.minute(2)
	harness.Eventually(t, soon, "end of the CronJob and its Jobs", func(ctx context.Context) error {
		if _, err := c.client.BatchV1().CronJobs(c.ns).Get(ctx, "backup", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the CronJob is there"), err)
		}
		return c.hasJobs("backup")(ctx)
	})
	if after := len(c.creations()); after != creations {
		t.Errorf("%d jobs were created after the deletion", after-creations)
	}
}

func TestAcceptance20_LateCachesDoNoHarm(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"cronjobs", "jobs"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.create(newCronJob("backup", everyMinute, policy(batchv1.ForbidConcurrent)))
			c.settle()
			late := jobResource
			late.Resource = resource
			c.Proxy.DelayWatches(late, 3*time.Second)
			first := c.minute(1)
			c.waitForStatus("backup", first, first)
			c.patch("backup", `{"metadata":{"annotations":{"touched":"once"}}}`)
			harness.Throughout(t, 4*time.Second, "one job", func(ctx context.Context) error {
				if creations := c.creations(); len(creations) != 1 {
					return fmt.Errorf("%d creations", len(creations))
				}
				return wrongStatus(c.get("backup"), first, first)
			})
			c.noEvent("backup", "UnexpectedJob", "MissingJob")
			c.end(jobName("backup", first), batchv1.JobComplete, first)
			second := c.minute(1)
			c.waitForStatus("backup", second, second)
			c.waitForJobs("backup", first, second)
			c.noEvent("backup", "UnexpectedJob", "MissingJob")
		})
	}
}

// A Job that is refused is told of, retried, and does not hold up the next time.
func TestARefusedJobIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	last := c.clock.Now().Truncate(time.Minute)
	allow := c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "create" && r.Resource == jobResource }, http.StatusForbidden, 0)
	begin := c.minute(1)
	c.waitForEvent("backup", "Warning", "FailedCreate", "Error creating job: ")
	c.waitForStatus("backup", last)
	harness.Throughout(t, aWhile, "a bounded number of attempts", func(context.Context) error {
		// Each waits twice as long as the one before, 5 ms at first.
		n := len(c.creations())
		if since := c.clock.Since(begin); float64(n) > 2+math.Log2(1+since.Seconds()/0.005) {
			return fmt.Errorf("%d in %s", n, since)
		}
		return nil
	})
	next := c.minute(1)
	attempts := len(c.creations())
	harness.Eventually(t, soon, "attempts at the next time", func(context.Context) error {
		if n := len(c.creations()); n < attempts+2 { // one may have begun before
			return fmt.Errorf("%d of %d", n, attempts+2)
		}
		return nil
	})
	allow()
	c.waitForStatus("backup", next, next)
	c.waitForJobs("backup", next)
}
