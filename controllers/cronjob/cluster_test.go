package cronjob_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/cronjob"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is ample for a few reconciles on a busy machine.
	soon = 2 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = time.Second
	// component of events.
	component = "cronjob-controller"
)

var (
	jobResource     = apischema.GroupResource{Group: "batch", Resource: "jobs"}
	cronJobResource = apischema.GroupResource{Group: "batch", Resource: "cronjobs"}
)

// cluster is a namespace with a running cronjob-controller, whose clock the
// test sets forward.
type cluster struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	client     kubernetes.Interface
	ns         string
	clock      *testclock.FakeClock
}

func start(t *testing.T) *cluster {
	t.Helper()
	// At the start of a minute, so that the next one is set by the test, and far
	// enough ahead of the API server's clock to stay ahead of it.
	clock := harness.NewClock(t, time.Now().Truncate(time.Minute).Add(10*time.Minute+time.Second))
	c := startWith(t, harness.Options{Clock: clock})
	c.clock = clock
	return c
}

func startWith(t *testing.T, o harness.Options) *cluster {
	t.Helper()
	engine := harness.New(t, controlplane.Shared(t), o)
	return &cluster{
		Engine:     engine,
		t:          t,
		controller: engine.Start(cronjob.Descriptor(), nil),
		client:     engine.Admin,
		ns:         engine.Namespace,
	}
}

// minute sets the clock to the n-th next full minute, and a moment, and returns that minute.
func (c *cluster) minute(n int) time.Time {
	c.t.Helper()
	c.settle()
	full := c.clock.Now().Truncate(time.Minute).Add(time.Duration(n) * time.Minute)
	c.clock.SetTime(full.Add(time.Second))
	return full
}

// settle returns when the controller's caches are up to date and nothing has
// been going on for a moment: who computes how long to wait while the clock is
// set waits too long.
func (c *cluster) settle() {
	c.t.Helper()
	c.controller.CatchUp()
	var quiet time.Time
	harness.Eventually(c.t, soon, "quiet", func(context.Context) error {
		if status := c.controller.Work(); status.Busy > 0 || status.Depth > 0 || quiet.IsZero() {
			quiet = time.Now()
		}
		if calm := time.Since(quiet); calm < 200*time.Millisecond {
			return fmt.Errorf("quiet for %s", calm)
		}
		return nil
	})
}

// heard returns when the controller has heard of all earlier changes of
// CronJobs, whose events come in their order.
func (c *cluster) heard() {
	c.t.Helper()
	c.createPlain(newCronJob("never-due", "59 23 31 2 *"))
	c.waitForEvent("never-due", "Warning", "InvalidSchedule", "")
}

// newCronJob has Jobs with a label and an annotation, as its template says.
func newCronJob(name, schedule string, changes ...func(*batchv1.CronJob)) *batchv1.CronJob {
	cronJob := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule: schedule,
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: map[string]string{"note": "kept"}},
				Spec: batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
					RestartPolicy: v1.RestartPolicyNever,
					Containers:    []v1.Container{{Name: "c", Image: "registry.example/c"}},
				}}},
			},
		},
	}
	for _, change := range changes {
		change(cronJob)
	}
	return cronJob
}

func policy(is batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
	return func(cronJob *batchv1.CronJob) { cronJob.Spec.ConcurrencyPolicy = is }
}

func deadline(seconds int64) func(*batchv1.CronJob) {
	return func(cronJob *batchv1.CronJob) { cronJob.Spec.StartingDeadlineSeconds = &seconds }
}

func suspended(cronJob *batchv1.CronJob) { cronJob.Spec.Suspend = ptr.To(true) }

// create creates a CronJob whose last run was in the minute of the clock, as
// the API server's own clock is behind it.
func (c *cluster) create(cronJob *batchv1.CronJob) *batchv1.CronJob {
	c.t.Helper()
	suspend := cronJob.Spec.Suspend
	cronJob.Spec.Suspend = ptr.To(true)
	created := c.createPlain(cronJob)
	c.setLast(cronJob.Name, c.clock.Now().Truncate(time.Minute))
	if !ptr.Deref(suspend, false) {
		return c.patch(cronJob.Name, `{"spec":{"suspend":false}}`)
	}
	return created
}

func (c *cluster) createPlain(cronJob *batchv1.CronJob) *batchv1.CronJob {
	c.t.Helper()
	created, err := c.client.BatchV1().CronJobs(c.ns).Create(c.t.Context(), cronJob, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) patch(name, patch string, subresources ...string) *batchv1.CronJob {
	c.t.Helper()
	patched, err := c.client.BatchV1().CronJobs(c.ns).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		c.t.Fatal(err)
	}
	return patched
}

func (c *cluster) setLast(name string, last time.Time) {
	c.t.Helper()
	c.patch(name, fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`, last.UTC().Format(time.RFC3339)), "status")
}

func (c *cluster) get(name string) *batchv1.CronJob {
	c.t.Helper()
	cronJob, err := c.client.BatchV1().CronJobs(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return cronJob
}

// jobName of a CronJob's Job of a time.
func jobName(cronJob string, scheduled time.Time) string {
	return fmt.Sprintf("%s-%d", cronJob, scheduled.Unix()/60)
}

// jobsOf are the names of a CronJob's Jobs, oldest first.
func (c *cluster) jobsOf(ctx context.Context, cronJob string) ([]string, error) {
	list, err := c.client.BatchV1().Jobs(c.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + cronJob})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// waitForJobs waits until a CronJob has the Jobs of these times, and no others.
func (c *cluster) waitForJobs(cronJob string, scheduled ...time.Time) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "the jobs of "+cronJob, c.hasJobs(cronJob, scheduled...))
}

func (c *cluster) hasJobs(cronJob string, scheduled ...time.Time) func(context.Context) error {
	var want []string
	for _, at := range scheduled {
		want = append(want, jobName(cronJob, at))
	}
	return func(ctx context.Context) error {
		got, err := c.jobsOf(ctx, cronJob)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("jobs %v, want %v", got, want)
		}
		return err
	}
}

// waitForStatus waits until the active Jobs are those of these times, and the
// last scheduled time is last.
func (c *cluster) waitForStatus(cronJob string, last time.Time, active ...time.Time) *batchv1.CronJob {
	c.t.Helper()
	var got *batchv1.CronJob
	harness.Eventually(c.t, soon, "status of "+cronJob, func(ctx context.Context) error {
		var err error
		if got, err = c.client.BatchV1().CronJobs(c.ns).Get(ctx, cronJob, metav1.GetOptions{}); err != nil {
			return err
		}
		return wrongStatus(got, last, active...)
	})
	return got
}

func wrongStatus(cronJob *batchv1.CronJob, last time.Time, active ...time.Time) error {
	var want, have []string
	for _, at := range active {
		want = append(want, jobName(cronJob.Name, at))
	}
	for _, ref := range cronJob.Status.Active {
		have = append(have, ref.Name)
	}
	slices.Sort(have)
	if !slices.Equal(have, want) || cronJob.Status.LastScheduleTime == nil || !cronJob.Status.LastScheduleTime.Time.Equal(last) {
		return fmt.Errorf("want %v active, last %s; got %s", want, last, inJSON(cronJob.Status))
	}
	return nil
}

// end makes a Job end as the job-controller does, and returns when it completed.
func (c *cluster) end(name string, with batchv1.JobConditionType, began time.Time) time.Time {
	c.t.Helper()
	at := began.Add(20 * time.Second).Truncate(time.Second)
	condition := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
	}
	job, err := c.client.BatchV1().Jobs(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	job.Status.StartTime = &metav1.Time{Time: began}
	if with == batchv1.JobComplete {
		job.Status.CompletionTime = &metav1.Time{Time: at}
		job.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet), condition(with)}
	} else {
		job.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobFailureTarget), condition(with)}
	}
	if _, err := c.client.BatchV1().Jobs(c.ns).UpdateStatus(c.t.Context(), job, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return at
}

func (c *cluster) deleteJob(name string) {
	c.t.Helper()
	background := metav1.DeletePropagationBackground
	err := c.client.BatchV1().Jobs(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil {
		c.t.Fatal(err)
	}
}

// events on a CronJob with a reason, as TYPE COMPONENT MESSAGE.
func (c *cluster) events(ctx context.Context, cronJob, reason string) ([]string, error) {
	list, err := c.client.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=CronJob,involvedObject.name=" + cronJob + ",reason=" + reason,
	})
	if err != nil {
		return nil, err
	}
	var messages []string
	for i := range list.Items {
		messages = append(messages, list.Items[i].Type+" "+list.Items[i].Source.Component+" "+list.Items[i].Message)
	}
	return messages, nil
}

// waitForEvent waits for an event on a CronJob whose message begins as given.
func (c *cluster) waitForEvent(cronJob, eventType, reason, message string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "event "+reason, func(ctx context.Context) error {
		got, err := c.events(ctx, cronJob, reason)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(got, func(text string) bool {
			return strings.HasPrefix(text, eventType+" "+component+" "+message)
		}) {
			return fmt.Errorf("got %q, want %s %q", got, eventType, message)
		}
		return nil
	})
}

// noEvent fails the test when there is an event with a reason.
func (c *cluster) noEvent(cronJob string, reasons ...string) {
	c.t.Helper()
	for _, reason := range reasons {
		if got, err := c.events(c.t.Context(), cronJob, reason); err != nil || len(got) > 0 {
			c.t.Errorf("events %q, %v", got, err)
		}
	}
}

// creations of Jobs that the controller has asked for, refused ones included.
func (c *cluster) creations() []apiproxy.Request {
	return c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "create" && r.Resource == jobResource })
}

func inJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
