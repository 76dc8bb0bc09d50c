package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_AJobRunsToCompletion(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(3, 2)))
	j := c.waitFor("work", "two active pods", counts(2, 0, 0), ready(0), terminating(0))
	if j.Status.StartTime == nil {
		t.Error("no start time")
	}
	pods := c.waitForPods("work", 2)
	owner := []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "work", UID: j.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	for _, pod := range pods {
		if !strings.HasPrefix(pod.Name, "work-") || len(pod.Name) != len("work-")+5 ||
			!slices.Equal(pod.Finalizers, []string{batchv1.JobTrackingFinalizer}) ||
			!equality.Semantic.DeepEqual(pod.OwnerReferences, owner) || pod.Labels[batchv1.JobNameLabel] != "work" {
			t.Errorf("metadata %s", inJSON(pod.ObjectMeta))
		}
		c.waitForEvent("work", v1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+pod.Name)
	}
	c.succeed(pods...)
	last := c.waitForPods("work", 1)
	c.waitFor("work", "two successes", counts(1, 2, 0), unfinished)
	c.succeed(last...)
	j = c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 3, 0))
	if j.Status.Succeeded != 3 || j.Status.CompletionTime.Before(j.Status.StartTime) {
		t.Errorf("status %s", inJSON(j.Status))
	}
	c.released("work")
	c.waitForEvent("work", v1.EventTypeNormal, "Completed", "Job completed")
	if pods, err := c.list(t.Context(), "work"); err != nil || len(pods) != 3 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	for _, metric := range []struct {
		name   string
		labels map[string]string
		want   float64
	}{
		{"jobs_finished_total", map[string]string{"result": "succeeded", "reason": "CompletionsReached", "completion_mode": "NonIndexed"}, 1},
		{"job_pods_finished_total", map[string]string{"result": "succeeded"}, 3},
		{"job_pods_creation_total", map[string]string{"reason": "new", "status": "succeeded"}, 3},
		{"terminated_pods_tracking_finalizer_total", map[string]string{"event": "add"}, 3},
		{"terminated_pods_tracking_finalizer_total", map[string]string{"event": "delete"}, 3},
	} {
		c.waitForMetric(metric.name, metric.labels, metric.want)
	}
}

func TestAcceptance02_WithoutCompletionsASuccessEndsCreation(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](3) }))
	pods := c.waitForPods("work", 3)
	c.succeed(pods[0])
	c.waitFor("work", "a success", counts(2, 1, 0), unfinished)
	c.succeed(pods[1])
	c.waitFor("work", "another success", counts(1, 2, 0), unfinished)
	c.fail(pods[2], time.Now())
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 2, 1))
	if created := len(c.writes("create")); created != 3 {
		t.Errorf("%d pods were created", created)
	}
}

func TestAcceptance03_FailuresBackOffUpToTheLimit(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("low", backoffLimit(1)))
	c.create(newJob("high"))
	wait := func(app string, back, least time.Duration, old ...v1.Pod) v1.Pod {
		t.Helper()
		at := time.Now().Truncate(time.Second).Add(-back)
		c.fail(old[len(old)-1], at)
		next, after := c.since(at, app, old...)
		if after < least {
			t.Errorf("%s: a pod was created %s after failure %d, want %s", app, after, len(old), least)
		}
		return next
	}
	low, high := c.waitForPods("low", 1)[0], c.waitForPods("high", 1)[0]
	second := wait("low", 6*time.Second, 10*time.Second, low)
	c.fail(second, time.Now())
	c.waitFor("low", "failure", ended(batchv1.JobFailed, "BackoffLimitExceeded"), counts(0, 0, 2),
		condition(batchv1.JobFailed, v1.ConditionTrue, "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
	c.waitForEvent("low", v1.EventTypeWarning, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
	secondHigh := wait("high", 7*time.Second, 10*time.Second, high)
	wait("high", 15*time.Second, 20*time.Second, high, secondHigh)
	c.waitFor("high", "two failures", counts(1, 0, 2), unfinished)
}

func TestAcceptance04_RestartsInPlaceCountForTheLimit(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	onFailure := func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyOnFailure }
	restarted := func(count int32) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Status.Phase = v1.PodRunning
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", RestartCount: count}}
		}
	}
	c.create(newJob("two", onFailure, backoffLimit(2)))
	c.create(newJob("none", onFailure, backoffLimit(0)))
	c.setPodStatus(c.waitForPods("two", 1)[0].Name, restarted(2))
	none := c.waitForPods("none", 1)[0].Name
	c.setPodStatus(none, restarted(0))
	c.waitFor("two", "failure", ended(batchv1.JobFailed, "BackoffLimitExceeded"), counts(0, 0, 1))
	c.controller.CatchUp()
	harness.Throughout(t, aWhile/2, "running on", func(context.Context) error {
		if fault := unfinished(c.get("none").Status); fault != "" {
			return fmt.Errorf("%s", fault)
		}
		return nil
	})
	c.setPodStatus(none, restarted(1))
	c.waitFor("none", "failure", ended(batchv1.JobFailed, "BackoffLimitExceeded"), counts(0, 0, 1))
}

func TestAcceptance05_TheDeadlineEndsAJob(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	deadline := func(s int64) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To(s) }
	}
	c.create(newJob("work", deadline(3600), graceful))
	c.create(newJob("late", deadline(100)))
	c.waitForPods("late", 1)
	pod := c.waitForPods("work", 1)[0]
	c.bind(pod)
	c.setPodStatus(pod.Name, running)
	// However long that took, it is over some seconds from now.
	seconds := int64(time.Since(c.waitFor("work", "the start", counts(1, 0, 0)).Status.StartTime.Time)/time.Second) + 5
	c.change("work", deadline(seconds))
	j := c.waitFor("work", "the announcement", condition(batchv1.JobFailureTarget, v1.ConditionTrue, "DeadlineExceeded",
		"Job was active longer than specified deadline"), counts(0, 0, 1), terminating(1))
	if took := j.Status.Conditions[0].LastTransitionTime.Sub(j.Status.StartTime.Time); took < time.Duration(seconds)*time.Second {
		t.Errorf("announced %s after the start, want %d s", took, seconds)
	}
	c.change("late", deadline(2))
	c.waitFor("late", "failure", ended(batchv1.JobFailed, "DeadlineExceeded"), counts(0, 0, 1))
	if len(c.get("work").Status.Conditions) != 1 {
		t.Error("finished while its pod terminates")
	}
	c.end(pod.Name)
	c.waitFor("work", "failure", ended(batchv1.JobFailed, "DeadlineExceeded"), counts(0, 0, 1))
}

func TestAcceptance06_AJobIsSuspendedAndResumed(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(2, 2)))
	c.waitForPods("work", 2)
	before := c.waitFor("work", "two pods", counts(2, 0, 0))
	c.change("work", suspend)
	c.waitForPods("work", 0)
	j := c.waitFor("work", "suspension", counts(0, 0, 0), terminating(0),
		condition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", "Job suspended"))
	if j.Status.StartTime != nil {
		t.Error("a suspended Job has a start time")
	}
	c.waitForEvent("work", v1.EventTypeNormal, "Suspended", "Job suspended")
	c.change("work", func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) })
	c.waitForPods("work", 2)
	j = c.waitFor("work", "resumption", counts(2, 0, 0), condition(batchv1.JobSuspended, v1.ConditionFalse, "JobResumed", "Job resumed"))
	if j.Status.StartTime == nil || j.Status.StartTime.Before(before.Status.StartTime) {
		t.Errorf("start time %v", j.Status.StartTime)
	}
	c.waitForEvent("work", v1.EventTypeNormal, "Resumed", "Job resumed")

	c.create(newJob("asleep", size(2, 2), suspend))
	j = c.waitFor("asleep", "suspension", counts(0, 0, 0), condition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", ""))
	if j.Status.StartTime != nil {
		t.Error("a suspended Job has a start time")
	}
	// What may be changed while it is suspended comes into force.
	c.change("asleep", func(j *batchv1.Job) {
		j.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
		j.Spec.Suspend = ptr.To(false)
	})
	for _, pod := range c.waitForPods("asleep", 2) {
		if pod.Spec.NodeSelector["zone"] != "a" {
			t.Errorf("node selector %v", pod.Spec.NodeSelector)
		}
	}

	c.create(newJob("empty", size(0, 1), suspend))
	j = c.waitFor("empty", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 0, 0))
	if j.Status.StartTime != nil {
		t.Error("it has never started")
	}
}

func TestAcceptance07_TheLeastUsefulPodsAreRemovedFirst(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(10, 5), graceful))
	pods := c.waitForPods("work", 5)
	c.bind(pods[:3]...)
	for _, pod := range pods[:2] {
		c.setPodStatus(pod.Name, readySince(time.Now()))
	}
	c.waitFor("work", "two ready pods", counts(5, 0, 0), ready(2))
	c.change("work", size(10, 2))
	left := c.waitForPods("work", 2)
	if left[0].Name != pods[0].Name || left[1].Name != pods[1].Name {
		t.Errorf("left are %s and %s, want the ready ones", left[0].Name, left[1].Name)
	}
	c.waitFor("work", "fewer pods", counts(2, 0, 0), ready(2), terminating(1))
	c.end(pods[2].Name)
	c.waitFor("work", "no terminating pod", counts(2, 0, 0), terminating(0))
}

func TestAcceptance15_JobsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("mine", func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To(batchv1.JobControllerName) }))
	theirs := c.create(newJob("theirs", func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("example.com/x") }))
	c.waitForPods("mine", 1)
	pod := newPod("theirs-pod", theirs)
	c.createPod(pod)
	c.createPod(newPod("theirs-deleted", theirs))
	c.setPodStatus(pod.Name, finished(v1.PodSucceeded, 0, time.Now()))
	c.deletePod("theirs-deleted")
	harness.Throughout(t, 10*time.Second, "patience", func(ctx context.Context) error {
		for _, name := range []string{"theirs-pod", "theirs-deleted"} {
			pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil || !tracked(pod) {
				return fmt.Errorf("pod %s: %w", name, err)
			}
		}
		if status := c.get("theirs").Status; !equality.Semantic.DeepEqual(status, batchv1.JobStatus{}) {
			return fmt.Errorf("status %s", inJSON(status))
		}
		return nil
	})
	c.waitForMetric("jobs_by_external_controller_total", map[string]string{"controller_name": "example.com/x"}, 1)
	for _, write := range c.Writes(podResource) {
		if strings.HasPrefix(write.Name, "theirs") {
			t.Errorf("write %+v", write)
		}
	}
}

// Pods that others have made may succeed beyond what the Job asks for.
func TestTooManySuccessesAreToldOf(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	j := c.create(newJob("work"))
	pods := c.waitForPods("work", 1)
	c.waitFor("work", "its pod", counts(1, 0, 0))
	c.replace(func() { // which sees both at once
		c.createPod(newPod("extra", j))
		c.succeed(pods[0])
		c.setPodStatus("extra", finished(v1.PodSucceeded, 0, time.Now()))
	}, nil)
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 2, 0))
	c.waitForEvent("work", v1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached")
}

// The counters outlive a life of the controller, which counts nothing again.
func TestRestartsCountNothingAgain(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	theirs := c.create(newJob("theirs", func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("example.com/x") }))
	pods := []*v1.Pod{c.createPod(newPod("one", theirs)), c.createPod(newPod("two", theirs))}
	for _, pod := range pods {
		c.setPodStatus(pod.Name, finished(v1.PodSucceeded, 0, time.Now()))
	}
	expect := func(jobs, added, gone float64) {
		t.Helper()
		c.waitForMetric("jobs_by_external_controller_total", nil, jobs)
		c.waitForMetric("terminated_pods_tracking_finalizer_total", map[string]string{"event": "add"}, added)
		c.waitForMetric("terminated_pods_tracking_finalizer_total", map[string]string{"event": "delete"}, gone)
	}
	expect(1, 2, 0)
	c.controller.Restart()
	expect(1, 2, 0)
	// What has happened between two lives is counted with the next.
	c.controller.Stop()
	c.patchPod("one", `{"metadata":{"finalizers":null}}`)
	c.createPod(newPod("three", theirs))
	c.setPodStatus("three", finished(v1.PodFailed, 1, time.Now()))
	c.controller.Start()
	expect(1, 3, 1)
	c.patchPod("two", `{"metadata":{"finalizers":null}}`)
	c.delete("theirs", metav1.DeletePropagationBackground)
	c.create(newJob("theirs", func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("example.com/x") }))
	// The pod "three" is let go with the Job that it was of.
	expect(2, 3, 3)
}

// A pod that is deleted before the cache knows its Job is taken from nobody who
// counts it: neither from another manager of the Job, nor from this one.
func TestAPodOfAJobThatTheCacheDoesNotKnowYetIsHeld(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	release := c.Proxy.HoldWatches(jobResource)
	defer release()
	theirs := c.create(newJob("theirs", func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("example.com/x") }))
	mine := c.create(newJob("mine"))
	held := func(ctx context.Context, name string) error {
		pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !tracked(pod) {
			err = errors.New("it is released")
		}
		return err
	}
	for _, j := range []*batchv1.Job{theirs, mine} {
		c.createPod(newPod(j.Name+"-pod", j))
		c.deletePod(j.Name + "-pod")
		harness.Eventually(t, soon, "a look at the live Job", func(context.Context) error {
			if len(c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "get" && r.Resource == jobResource && r.Name == j.Name })) == 0 {
				return errors.New("none")
			}
			return nil
		})
		harness.Throughout(t, aWhile/2, "hold of "+j.Name, func(ctx context.Context) error { return held(ctx, j.Name+"-pod") })
	}
	release()
	c.waitFor("mine", "the failure of the pod", failures(1), unfinished)
	c.released("mine")
	c.controller.CatchUp()
	harness.Throughout(t, aWhile/2, "hold of another's pod", func(ctx context.Context) error { return held(ctx, "theirs-pod") })
}

// newPod is a pod that somebody makes for a Job.
func newPod(name string, owner *batchv1.Job, changes ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: owner.Spec.Template.Labels, Finalizers: []string{batchv1.JobTrackingFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: *owner.Spec.Template.Spec.DeepCopy(),
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func (c *cluster) createPod(pod *v1.Pod) *v1.Pod {
	c.t.Helper()
	created, err := c.client.CoreV1().Pods(c.ns).Create(c.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func TestAcceptance16_PodsAreAdoptedAndReleased(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(5, 2)))
	pods := c.waitForPods("work", 2)
	c.waitFor("work", "two pods", counts(2, 0, 0))
	c.patchPod(pods[0].Name, `{"metadata":{"ownerReferences":null}}`)
	harness.Eventually(t, soon, "adoption", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, pods[0].Name, metav1.GetOptions{})
		if err == nil && (metav1.GetControllerOf(pod) == nil || !tracked(pod)) {
			err = fmt.Errorf("metadata %s", inJSON(pod.ObjectMeta))
		}
		return err
	})
	c.patchPod(pods[1].Name, `{"metadata":{"labels":null}}`)
	harness.Eventually(t, soon, "release", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, pods[1].Name, metav1.GetOptions{})
		if err == nil && (metav1.GetControllerOf(pod) != nil || tracked(pod)) {
			err = fmt.Errorf("metadata %s", inJSON(pod.ObjectMeta))
		}
		return err
	})
	now := c.waitForPods("work", 2)
	// A pod that was counted and is orphaned then is not counted again.
	c.succeed(now[0])
	c.waitFor("work", "a success", counts(2, 1, 0))
	harness.Eventually(t, soon, "release", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, now[0].Name, metav1.GetOptions{})
		if err == nil && tracked(pod) {
			err = fmt.Errorf("it is held")
		}
		return err
	})
	c.patchPod(now[0].Name, `{"metadata":{"ownerReferences":null}}`)
	c.controller.CatchUp()
	harness.Throughout(t, aWhile, "the count", func(context.Context) error {
		if fault := counts(2, 1, 0)(c.get("work").Status); fault != "" {
			return fmt.Errorf("%s", fault)
		}
		return nil
	})
}
