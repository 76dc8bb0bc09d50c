package cronjob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// bench is a controller whose caches show at once what its client has written.
type bench struct {
	*cronJobController
	t      *testing.T
	client *fake.Clientset
	events *record.FakeRecorder
	key    work.ObjectName
	group  *work.Group
}

func newBench(t *testing.T, cronJob *batchv1.CronJob) *bench {
	t.Helper()
	events := record.NewFakeRecorder(100_000)
	b := &bench{
		t:      t,
		client: fake.NewClientset(cronJob.DeepCopy()),
		events: events,
		key:    cache.MetaObjectToName(cronJob),
	}
	b.cronJobController = &cronJobController{
		client:   b.client,
		cronJobs: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		jobs:     cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers()),
		events:   events,
		logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
		clock:    clock.RealClock{}, // that of the bubble, in a bubble
		skew:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "skew"}),
	}
	b.group = work.NewGroup(work.GroupOptions{Name: "cronjob", Logger: b.logger, Clock: clock.RealClock{}})
	b.queue = work.NewQueue(b.group, work.Options[work.ObjectName]{Name: "cronjob", Reconcile: b.reconcile})
	t.Cleanup(func() {
		if err := b.group.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
	// The API server gives what the fake one does not.
	b.client.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		job := action.(clienttesting.CreateAction).GetObject().(*batchv1.Job)
		job.UID = types.UID("uid of " + job.Name)
		job.CreationTimestamp = metav1.Now()
		return false, nil, nil
	})
	b.sync()
	return b
}

// sync lets the caches show what the API server has.
func (b *bench) sync() {
	b.t.Helper()
	cronJobs, err := b.client.BatchV1().CronJobs("").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	jobs, err := b.client.BatchV1().Jobs("").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	var cronJobObjs, jobObjs []any
	for i := range cronJobs.Items {
		cronJobObjs = append(cronJobObjs, &cronJobs.Items[i])
	}
	for i := range jobs.Items {
		jobObjs = append(jobObjs, &jobs.Items[i])
	}
	if err := errors.Join(b.cronJobs.Replace(cronJobObjs, ""), b.jobs.Replace(jobObjs, "")); err != nil {
		b.t.Fatal(err)
	}
}

// run reconciles once, with the objects of the caches watched for changes.
func (b *bench) run() (work.Result, error) {
	b.t.Helper()
	var before []runtime.Object
	cached := append(b.cronJobs.List(), b.jobs.List()...)
	for _, obj := range cached {
		before = append(before, obj.(runtime.Object).DeepCopyObject())
	}
	result, err := b.reconcile(b.t.Context(), b.key)
	for i, obj := range cached {
		if !equality.Semantic.DeepEqual(obj, before[i]) {
			b.t.Errorf("an object of the cache was changed: %+v", obj)
		}
	}
	b.sync()
	return result, err
}

func (b *bench) mustRun() work.Result {
	b.t.Helper()
	result, err := b.run()
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *bench) stored() *batchv1.CronJob {
	b.t.Helper()
	stored, err := b.client.BatchV1().CronJobs(b.key.Namespace).Get(b.t.Context(), b.key.Name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return stored
}

// told returns the events so far, and forgets them.
func (b *bench) told() []string {
	var events []string
	for {
		select {
		case event := <-b.events.Events:
			events = append(events, event)
		default:
			return events
		}
	}
}

// What no retry mends is told, and waits for a change.
func TestBadInputIsToldAndWaits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, schedule string
		zone           *string
		event          string
	}{
		{"schedule", "every day", nil, `Warning UnparseableSchedule unparseable schedule: "every day" : expected exactly 5 fields, found 2: [every day]`},
		{"half a zone in the schedule", "TZ=0", nil, `Warning UnparseableSchedule unparseable schedule: "TZ=0" : invalid schedule format: `},
		{"zone in the schedule", "TZ=No/Where * * * * *", nil,
			`Warning UnparseableSchedule unparseable schedule: "TZ=No/Where * * * * *" : provided bad location No/Where: unknown time zone No/Where`},
		{"zone", "* * * * *", ptr.To("No/Where"), `Warning UnknownTimeZone invalid timeZone: "No/Where": unknown time zone No/Where`},
		{"zone of a file", "* * * * *", ptr.To("../../etc/passwd"), `Warning UnknownTimeZone invalid timeZone: "../../etc/passwd": time: invalid location name`},
		{"never due", "59 23 31 2 *", nil,
			"Warning InvalidSchedule invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"},
		{"no field", ", * * * *", nil, "Warning InvalidSchedule invalid schedule: , * * * * : time difference"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cronJob := scheduled(test.schedule, "", time.Now().Add(-24*time.Hour))
			cronJob.Spec.TimeZone = test.zone
			b := newBench(t, cronJob)
			if result := b.mustRun(); result != (work.Result{}) {
				t.Errorf("it comes back after %s", result.RequeueAfter)
			}
			events := b.told()
			if last := events[len(events)-1]; !strings.HasPrefix(last, test.event) {
				t.Errorf("events %q, want %q", events, test.event)
			}
			for _, action := range b.client.Actions() {
				if verb := action.GetVerb(); verb != "list" {
					t.Errorf("request %s %s", verb, action.GetResource().Resource)
				}
			}
		})
	}
}

// A zone within the schedule is warned of, and heeded.
func TestZoneWithinTheSchedule(t *testing.T) {
	t.Parallel()
	b := newBench(t, scheduled("CRON_TZ=Asia/Tokyo * * * * *", "UTC", time.Now().Add(-2*time.Minute)))
	if b.mustRun().RequeueAfter == 0 {
		t.Error("it does not come back")
	}
	events := b.told()
	want := `Warning UnsupportedSchedule CRON_TZ or TZ used in schedule "CRON_TZ=Asia/Tokyo * * * * *" is not officially supported, ` +
		`see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details`
	if events[0] != want || !strings.HasPrefix(events[1], "Normal SuccessfulCreate Created job backup-") {
		t.Errorf("events %q", events)
	}
}

// A change of the schedule to one that is none is told by the handler, and the
// key is left alone.
func TestUnparseableChange(t *testing.T) {
	t.Parallel()
	before := scheduled("* * * * *", "UTC", time.Now())
	b := newBench(t, before)
	for _, zone := range []string{"UTC", "No/Where"} {
		after := before.DeepCopy()
		after.Spec.Schedule, after.Spec.TimeZone = "every day", ptr.To(zone)
		b.updated(before, after)
		if events := b.told(); len(events) != 1 ||
			!strings.HasPrefix(events[0], "Warning UnParseableCronJobSchedule unparseable schedule for cronjob: ") {
			t.Errorf("events %q", events)
		}
	}
	if status := b.group.Status(); status.Depth > 0 {
		t.Errorf("work %+v", status)
	}
}

// A change to a time zone that cannot be loaded leaves the schedule as good as it
// was: it is for the reconcile to tell of the zone, and at once.
func TestChangeToAnUnknownTimeZone(t *testing.T) {
	t.Parallel()
	before := scheduled("0 0 1 1 *", "UTC", time.Now())
	b := newBench(t, before)
	after := before.DeepCopy()
	after.Spec.TimeZone = ptr.To("No/Where")
	b.updated(before, after)
	if events := b.told(); len(events) > 0 {
		t.Errorf("events %q", events)
	}
	if status := b.group.Status(); status.Depth != 1 {
		t.Errorf("work %+v", status)
	}
}

// pass lets time go by in a bubble: its clock jumps, and nothing is waited for.
func pass(d time.Duration) { time.Sleep(d) }

// simulate lives through a time with a CronJob whose Jobs end at once, and
// returns the times that ran, in its zone.
func simulate(t *testing.T, b *bench, until time.Time) []string {
	zone, err := time.LoadLocation(*b.stored().Spec.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	var ran []string
	for time.Now().Before(until) {
		result := b.mustRun()
		if result.RequeueAfter < time.Millisecond {
			t.Fatalf("it comes back after %s", result.RequeueAfter)
		}
		for _, ref := range b.stored().Status.Active {
			job, err := b.client.BatchV1().Jobs(ref.Namespace).Get(t.Context(), ref.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			at := b.stored().Status.LastScheduleTime
			if late := time.Since(at.Time); late < 0 || late > 200*time.Millisecond {
				t.Errorf("%s ran %s late", ref.Name, late)
			}
			ran = append(ran, at.In(zone).Format("02 15:04 MST"))
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
			job.Status.CompletionTime = ptr.To(metav1.Now())
			if _, err := b.client.BatchV1().Jobs(ref.Namespace).UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			b.sync()
			result = b.mustRun()
		}
		pass(result.RequeueAfter)
	}
	return ran
}

// Days with 23 and 25 hours, lived through.
func TestChangesOfTheClocks(t *testing.T) {
	for _, test := range []struct {
		name, schedule, zone string
		from, until          string
		want                 []string
	}{
		{"a skipped time", "30 2 * * *", "America/New_York", "2026-03-07T00:00:00-05:00", "2026-03-10T00:00:00-04:00",
			[]string{"07 02:30 EST", "09 02:30 EDT"}},
		{"a repeated time", "30 1 * * *", "America/New_York", "2026-10-31T00:00:00-04:00", "2026-11-03T00:00:00-05:00",
			[]string{"31 01:30 EDT", "01 01:30 EDT", "01 01:30 EST", "02 01:30 EST"}},
		{"hours around a skipped one", "0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00", "2026-03-29T04:30:00+02:00",
			[]string{"29 01:00 CET", "29 03:00 CEST", "29 04:00 CEST"}},
		{"hours around a repeated one", "0 * * * *", "Europe/Berlin", "2026-10-25T00:30:00+02:00", "2026-10-25T04:30:00+01:00",
			[]string{"25 01:00 CEST", "25 02:00 CEST", "25 02:00 CET", "25 03:00 CET", "25 04:00 CET"}},
		{"in phase", "@every 5h", "Europe/Berlin", "2026-10-24T20:10:00+02:00", "2026-10-25T12:00:00+01:00",
			[]string{"25 01:10 CEST", "25 05:10 CET", "25 10:10 CET"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := at(t, test.from)
				pass(time.Until(from))
				b := newBench(t, scheduled(test.schedule, test.zone, from))
				if got := simulate(t, b, at(t, test.until)); !slices.Equal(got, test.want) {
					t.Errorf("ran at %q, want %q", got, test.want)
				}
			})
		})
	}
}

// Every fraction of an interval counts from the last run, whatever the deadline.
func TestEveryKeepsItsPhaseWithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cronJob := scheduled("@every 1h", "UTC", time.Now())
		cronJob.Spec.StartingDeadlineSeconds = ptr.To[int64](100)
		b := newBench(t, cronJob)
		want := []string{"01 01:00 UTC", "01 02:00 UTC", "01 03:00 UTC"}
		if got := simulate(t, b, time.Now().Add(3*time.Hour+time.Minute)); !slices.Equal(got, want) {
			t.Errorf("ran at %q, want %q", got, want)
		}
	})
}

// A controller that is busy with other things for longer than a deadline skips
// the run and says so; with a deadline of 0 that is always the case.
func TestMissedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, deadline := range []int64{0, 10} {
			cronJob := scheduled("0 * * * *", "UTC", time.Now())
			cronJob.Spec.StartingDeadlineSeconds = &deadline
			b := newBench(t, cronJob)
			pass(b.mustRun().RequeueAfter + 11*time.Second)
			due := time.Now().Truncate(time.Hour)
			result := b.mustRun()
			want := []string{"Warning MissSchedule Missed scheduled time to start a job: " + due.UTC().Format(time.RFC1123Z)}
			if events := b.told(); !slices.Equal(events, want) {
				t.Errorf("deadline %d: events %q, want %q", deadline, events, want)
			}
			if next := time.Now().Add(result.RequeueAfter); !next.Equal(due.Add(time.Hour + padding)) {
				t.Errorf("deadline %d: it comes back at %s", deadline, next)
			}
		}
	})
}

// A clock that is set back does not make a time run again.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cronJob := scheduled("0 * * * *", "UTC", time.Now())
		last := time.Now().Add(5 * time.Hour)
		cronJob.Status.LastScheduleTime = ptr.To(metav1.NewTime(last))
		b := newBench(t, cronJob)
		if next := time.Now().Add(b.mustRun().RequeueAfter); !next.Equal(last.Add(time.Hour + padding)) {
			t.Errorf("it comes back at %s, want an hour after %s", next, last)
		}
		if events := b.told(); len(events) > 0 {
			t.Errorf("events %q", events)
		}
	})
}

// A time that passes while the Job of the last one is created is not slept through.
func TestATimeThatPassesMeanwhileIsNotSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, scheduled("* * * * *", "UTC", time.Now()))
		pass(b.mustRun().RequeueAfter)
		b.client.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			pass(70 * time.Second)
			return false, nil, nil
		})
		if wait := b.mustRun().RequeueAfter; wait != time.Millisecond {
			t.Errorf("it comes back after %s, want at once", wait)
		}
		b.mustRun()
		if active := b.stored().Status.Active; len(active) != 2 {
			t.Errorf("active %v", active)
		}
	})
}

// A failure is retried with back-off, and at the next time at the latest.
func TestFailureComesBackAtTheNextTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, scheduled("* * * * *", "UTC", time.Now()))
		pass(b.mustRun().RequeueAfter)
		refused := errors.New("refused")
		b.client.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		result, err := b.run()
		if !errors.Is(err, refused) || result.RequeueAfter != time.Minute {
			t.Errorf("got %v, %v; want the refusal and a minute", result, err)
		}
		if events := b.told(); len(events) != 1 || events[0] != "Warning FailedCreate Error creating job: refused" {
			t.Errorf("events %q", events)
		}
	})
}

// While it cannot be told which Jobs run none is started, and the next time is
// not slept through.
func TestUnknownActiveJobsStartNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cronJob := scheduled("* * * * *", "UTC", time.Now())
		cronJob.Status.Active = []v1.ObjectReference{{Namespace: "a", Name: "running", UID: "running"}}
		b := newBench(t, cronJob)
		pass(61 * time.Second)
		down := errors.New("down")
		b.client.PrependReactor("get", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, down })
		result, err := b.run()
		if !errors.Is(err, down) || result.RequeueAfter != 59*time.Second+padding {
			t.Errorf("got %v, %v; want the failure and the next minute", result, err)
		}
		if status := b.stored().Status; status.LastScheduleTime != nil || len(status.Active) != 1 {
			t.Errorf("status %+v", status)
		}
	})
}

// Nor is it while the CronJob itself cannot be read.
func TestTheNextTimeIsKeptWhenTheCronJobCannotBeRead(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*batchv1.CronJob)
		want   time.Duration
	}{
		{"scheduled", func(*batchv1.CronJob) {}, 59*time.Second + padding},
		{"suspended", func(cronJob *batchv1.CronJob) { cronJob.Spec.Suspend = ptr.To(true) }, 0},
		{"being deleted", func(cronJob *batchv1.CronJob) {
			cronJob.DeletionTimestamp, cronJob.Finalizers = ptr.To(metav1.Now()), []string{"example.com/hold"}
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cronJob := scheduled("* * * * *", "UTC", time.Now())
				test.change(cronJob)
				b := newBench(t, cronJob)
				pass(61 * time.Second)
				if err := b.jobs.Add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cronJob.Namespace, Name: "by-hand", UID: "by hand",
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronJob, cronJobKind)}}}); err != nil {
					t.Fatal(err)
				}
				down := errors.New("down")
				b.client.PrependReactor("get", "cronjobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, down })
				result, err := b.reconcile(t.Context(), b.key)
				if !errors.Is(err, down) || result.RequeueAfter != test.want {
					t.Errorf("got %v, %v; want the failure and %s", result, err, test.want)
				}
			})
		})
	}
}

// What a status lists without the CronJob being its controller is neither
// waited for nor deleted.
func TestForeignActiveEntriesAreDropped(t *testing.T) {
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cronJob := scheduled("* * * * *", "UTC", time.Now())
				cronJob.Spec.ConcurrencyPolicy = policy
				b := newBench(t, cronJob)
				for _, namespace := range []string{"a", "elsewhere"} {
					job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs", UID: types.UID(namespace)}}
					if err := b.client.Tracker().Add(job); err != nil {
						t.Fatal(err)
					}
					cronJob.Status.Active = append(cronJob.Status.Active, v1.ObjectReference{Namespace: namespace, Name: job.Name, UID: job.UID})
				}
				if _, err := b.client.BatchV1().CronJobs("a").UpdateStatus(t.Context(), cronJob, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				b.sync()
				pass(61 * time.Second)
				b.client.ClearActions()
				b.mustRun()
				if active := b.stored().Status.Active; len(active) != 1 || active[0].Name == "theirs" {
					t.Errorf("active %v", active)
				}
				for _, action := range b.client.Actions() {
					if action.GetVerb() == "delete" || action.GetVerb() == "get" && action.GetNamespace() == "elsewhere" {
						t.Errorf("%s in %s", action.GetVerb(), action.GetNamespace())
					}
				}
				want := []string{"Normal MissingJob Active job went missing: theirs", "Normal MissingJob Active job went missing: theirs"}
				if events := b.told(); len(events) != 3 || !slices.Equal(events[:2], want) {
					t.Errorf("events %q", events)
				}
			})
		})
	}
}

// What has been done before a failure is in the status.
func TestStatusTellsWhatWasDoneBeforeAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cronJob := scheduled("* * * * *", "UTC", time.Now())
		cronJob.Spec.ConcurrencyPolicy = batchv1.ReplaceConcurrent
		cronJob.Status.Active = []v1.ObjectReference{{Namespace: "a", Name: "old", UID: "old"}, {Namespace: "a", Name: "older", UID: "older"}}
		b := newBench(t, cronJob)
		for _, name := range []string{"old", "older"} {
			job := newJob(cronJob, time.Now())
			job.Name, job.UID = name, types.UID(name)
			if err := b.client.Tracker().Add(job); err != nil {
				t.Fatal(err)
			}
		}
		b.sync()
		pass(b.mustRun().RequeueAfter)
		b.told()
		refused := errors.New("refused")
		b.client.PrependReactor("delete", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.(clienttesting.DeleteAction).GetName() == "older", nil, refused
		})
		_, err := b.run()
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), "could not replace job a/older") {
			t.Errorf("error %v", err)
		}
		if active := b.stored().Status.Active; len(active) != 1 || active[0].Name != "older" {
			t.Errorf("active %v", active)
		}
		want := []string{"Normal SuccessfulDelete Deleted job old", "Warning FailedDelete Deleted job: refused"}
		if events := b.told(); !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

// A name that is there already is taken over if it is this CronJob's Job.
func TestAlreadyExists(t *testing.T) {
	for _, test := range []struct {
		name   string
		ours   bool
		active int
	}{{"ours", true, 1}, {"another's", false, 0}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cronJob := scheduled("* * * * *", "UTC", time.Now())
				b := newBench(t, cronJob)
				pass(b.mustRun().RequeueAfter)
				due := time.Now().Truncate(time.Minute)
				job := newJob(cronJob, due)
				job.UID = "there"
				if !test.ours {
					job.OwnerReferences = nil
				}
				if err := b.client.Tracker().Add(job); err != nil {
					t.Fatal(err)
				}
				if b.mustRun().RequeueAfter != time.Minute { // the cache does not show the Job
					t.Error("it does not come back at the next time")
				}
				status := b.stored().Status
				if len(status.Active) != test.active || (status.LastScheduleTime != nil) != test.ours {
					t.Errorf("status %+v", status)
				}
				if events := b.told(); len(events) > 0 {
					t.Errorf("events %q", events)
				}
			})
		})
	}
}

// The UID in the index is that of the CronJob, so that the Jobs of a former one
// of the same name are not touched.
func TestJobsOfAFormerCronJobAreLeftAlone(t *testing.T) {
	t.Parallel()
	cronJob := scheduled("0 0 1 1 *", "UTC", time.Now())
	cronJob.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](0)
	b := newBench(t, cronJob)
	former := cronJob.DeepCopy()
	former.UID = "0"
	job := newJob(former, time.Now())
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
	if err := b.client.Tracker().Add(job); err != nil {
		t.Fatal(err)
	}
	b.sync()
	b.mustRun()
	if _, err := b.client.BatchV1().Jobs("a").Get(t.Context(), job.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if events := b.told(); len(events) > 0 {
		t.Errorf("events %q", events)
	}
}

func TestBeyond(t *testing.T) {
	t.Parallel()
	began := func(name string, minute int) *batchv1.Job {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if minute >= 0 {
			job.Status.StartTime = ptr.To(metav1.NewTime(time.Unix(int64(minute)*60, 0)))
		}
		return job
	}
	all := []*batchv1.Job{began("d", -1), began("a", 3), began("c", 1), began("b", 1), began("e", -1), began("f", 2)}
	for limit, want := range map[int]string{-1: "bcfade", 0: "bcfade", 1: "bcfad", 3: "bcf", 5: "b", 6: "", 7: ""} {
		var got strings.Builder
		for _, job := range beyond(slices.Clone(all), limit) {
			fmt.Fprint(&got, job.Name)
		}
		if got.String() != want {
			t.Errorf("limit %d: %s, want %s", limit, got.String(), want)
		}
	}
}

// A Job that is being deleted already is not deleted again, and is not unexpected.
func TestJobsBeingDeletedAreLeftAlone(t *testing.T) {
	t.Parallel()
	cronJob := scheduled("0 0 1 1 *", "UTC", time.Now())
	cronJob.Spec.FailedJobsHistoryLimit = ptr.To[int32](0)
	b := newBench(t, cronJob)
	for i, conditions := range [][]batchv1.JobCondition{nil, {{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}} {
		job := newJob(cronJob, time.Unix(int64(i)*60, 0))
		job.UID = types.UID(job.Name)
		job.Finalizers, job.DeletionTimestamp = []string{"example.com/hold"}, ptr.To(metav1.Now())
		job.Status.Conditions = conditions
		if err := b.client.Tracker().Add(job); err != nil {
			t.Fatal(err)
		}
	}
	b.sync()
	b.client.ClearActions()
	b.mustRun()
	if events := b.told(); len(events) > 0 {
		t.Errorf("events %q", events)
	}
	for _, action := range b.client.Actions() {
		if action.GetVerb() != "list" {
			t.Errorf("request %s %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}
