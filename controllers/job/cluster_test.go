package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/job"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is ample for a few reconciles on a busy machine.
	soon = 3 * time.Minute
	// minutes are for what is done to many Jobs while everything is disturbed.
	minutes = 5 * time.Minute
	// aWhile is how long something must not happen: longer than pod events are collected.
	aWhile = 2500 * time.Millisecond
)

var (
	podResource = apischema.GroupResource{Resource: "pods"}
	jobResource = apischema.GroupResource{Group: "batch", Resource: "jobs"}
)

// cluster is a namespace with a running job-controller.
type cluster struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	client     kubernetes.Interface
	ns         string
}

func start(t *testing.T, o harness.Options) *cluster {
	t.Helper()
	engine := harness.New(t, controlplane.Shared(t), o)
	return &cluster{
		Engine:     engine,
		t:          t,
		controller: engine.Start(job.Descriptor(), nil),
		client:     engine.Admin,
		ns:         engine.Namespace,
	}
}

// replace stops the controller, lets something happen, and starts another
// process in its place, which sees all of that at once: its caches are new.
// Before may prepare the proxy of the other process; nil does not.
func (c *cluster) replace(happens func(), before func(*apiproxy.Proxy)) {
	c.t.Helper()
	c.controller.Stop()
	happens()
	c.Engine = harness.New(c.t, controlplane.Shared(c.t), harness.Options{Scope: apiproxy.Scope{Namespace: c.ns}})
	if before != nil {
		before(c.Proxy)
	}
	c.controller = c.Start(job.Descriptor(), nil)
}

// newJob has the template label app: NAME, and pods that are gone as soon as
// they are deleted and hold no finalizer.
func newJob(name string, changes ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
			Spec: v1.PodSpec{
				RestartPolicy:                 v1.RestartPolicyNever,
				TerminationGracePeriodSeconds: ptr.To[int64](0),
				Containers:                    []v1.Container{{Name: "c", Image: "registry.example/c"}},
			},
		}},
	}
	for _, change := range changes {
		change(j)
	}
	return j
}

func size(completions, parallelism int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Completions, j.Spec.Parallelism = ptr.To(completions), ptr.To(parallelism)
	}
}

func indexed(completions, parallelism int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		size(completions, parallelism)(j)
		j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	}
}

func backoffLimit(limit int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To(limit) }
}

func perIndex(limit int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To(limit) }
}

func suspend(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }

// graceful pods stay while they terminate, once they are on a node.
func graceful(j *batchv1.Job) {
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
}

func replacement(policy batchv1.PodReplacementPolicy) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(policy) }
}

func (c *cluster) create(j *batchv1.Job) *batchv1.Job {
	c.t.Helper()
	created, err := c.client.BatchV1().Jobs(c.ns).Create(c.t.Context(), j, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) get(name string) *batchv1.Job {
	c.t.Helper()
	j, err := c.client.BatchV1().Jobs(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return j
}

// change changes a Job as a user does.
func (c *cluster) change(name string, change func(*batchv1.Job)) {
	c.t.Helper()
	c.retry(func() error {
		j, err := c.client.BatchV1().Jobs(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(j)
		_, err = c.client.BatchV1().Jobs(c.ns).Update(c.t.Context(), j, metav1.UpdateOptions{})
		return err
	})
}

func (c *cluster) delete(name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	err := c.client.BatchV1().Jobs(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) retry(write func() error) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "a write without conflict", func(context.Context) error {
		err := write()
		if err != nil && !apierrors.IsConflict(err) {
			c.t.Fatal(err)
		}
		return err
	})
}

// waitFor waits until the status of a Job is as wanted by all of checks, which
// return what is wrong.
func (c *cluster) waitFor(name, what string, checks ...func(batchv1.JobStatus) string) *batchv1.Job {
	c.t.Helper()
	var j *batchv1.Job
	harness.Eventually(c.t, soon, what+" of "+name, func(ctx context.Context) error {
		var err error
		if j, err = c.client.BatchV1().Jobs(c.ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, wrong := range checks {
			if fault := wrong(j.Status); fault != "" {
				return fmt.Errorf("%s: %s", fault, inJSON(j.Status))
			}
		}
		return nil
	})
	return j
}

func counts(active, succeeded, failed int32) func(batchv1.JobStatus) string {
	return func(s batchv1.JobStatus) string {
		u := ptr.Deref(s.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
		if s.Active != active || s.Succeeded+int32(len(u.Succeeded)) != succeeded || s.Failed+int32(len(u.Failed)) != failed {
			return fmt.Sprintf("want %d active, %d succeeded, %d failed", active, succeeded, failed)
		}
		return ""
	}
}

// failures wants so many failed pods, whether they have been replaced yet or not.
func failures(count int32) func(batchv1.JobStatus) string {
	return func(s batchv1.JobStatus) string {
		if s.Failed+int32(len(ptr.Deref(s.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{}).Failed)) != count {
			return fmt.Sprintf("want %d failed", count)
		}
		return ""
	}
}

func terminating(count int32) func(batchv1.JobStatus) string {
	return func(s batchv1.JobStatus) string {
		if s.Terminating == nil || *s.Terminating != count {
			return fmt.Sprintf("want %d terminating", count)
		}
		return ""
	}
}

func ready(count int32) func(batchv1.JobStatus) string {
	return func(s batchv1.JobStatus) string {
		if s.Ready == nil || *s.Ready != count {
			return fmt.Sprintf("want %d ready", count)
		}
		return ""
	}
}

func indexes(completed, failed string) func(batchv1.JobStatus) string {
	return func(s batchv1.JobStatus) string {
		if s.CompletedIndexes != completed || ptr.Deref(s.FailedIndexes, "") != failed {
			return fmt.Sprintf("want completed indexes %q, failed indexes %q", completed, failed)
		}
		return ""
	}
}

func condition(of batchv1.JobConditionType, is v1.ConditionStatus, reason, message string) func(batchv1.JobStatus) string {
	return func(s batchv1.JobStatus) string {
		for _, c := range s.Conditions {
			if c.Type == of && c.Status == is && c.Reason == reason && (message == "" || c.Message == message) {
				return ""
			}
		}
		return fmt.Sprintf("want %s=%s with reason %s and message %q", of, is, reason, message)
	}
}

// unfinished Jobs have no condition that announces their end.
func unfinished(s batchv1.JobStatus) string {
	for _, c := range s.Conditions {
		if c.Type != batchv1.JobSuspended {
			return "want no end"
		}
	}
	return ""
}

// ended is a status that the API promises of a finished Job, with its conditions in their order.
func ended(final batchv1.JobConditionType, reason string) func(batchv1.JobStatus) string {
	target := map[batchv1.JobConditionType]batchv1.JobConditionType{
		batchv1.JobComplete: batchv1.JobSuccessCriteriaMet, batchv1.JobFailed: batchv1.JobFailureTarget,
	}[final]
	return func(s batchv1.JobStatus) string {
		var types []batchv1.JobConditionType
		for _, c := range s.Conditions {
			if c.Type != batchv1.JobSuspended {
				types = append(types, c.Type)
			}
		}
		if !slices.Equal(types, []batchv1.JobConditionType{target, final}) {
			return fmt.Sprintf("want %s and then %s", target, final)
		}
		u := s.UncountedTerminatedPods
		if u == nil || len(u.Succeeded)+len(u.Failed) > 0 || (s.CompletionTime != nil) != (final == batchv1.JobComplete) {
			return "want nothing uncounted, and a completion time if it is complete"
		}
		for _, wrong := range []func(batchv1.JobStatus) string{
			condition(target, v1.ConditionTrue, reason, ""), condition(final, v1.ConditionTrue, reason, ""), terminating(0), ready(0),
		} {
			if fault := wrong(s); fault != "" {
				return fault
			}
		}
		return ""
	}
}

func inJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (c *cluster) list(ctx context.Context, app string) ([]v1.Pod, error) {
	list, err := c.client.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func isActive(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded
}

// waitForPods waits until app has count active pods, and returns them, ordered
// by index and name.
func (c *cluster) waitForPods(app string, count int) []v1.Pod {
	c.t.Helper()
	var pods []v1.Pod
	harness.Eventually(c.t, soon, fmt.Sprintf("%d pods of %s", count, app), func(ctx context.Context) error {
		all, err := c.list(ctx, app)
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(all, func(pod v1.Pod) bool { return !isActive(&pod) })
		if len(pods) != count {
			return fmt.Errorf("%d active pods", len(pods))
		}
		return nil
	})
	slices.SortFunc(pods, func(a, b v1.Pod) int {
		return strings.Compare(indexOf(&a)+"/"+a.Name, indexOf(&b)+"/"+b.Name)
	})
	return pods
}

func indexOf(pod *v1.Pod) string { return pod.Annotations[batchv1.JobCompletionIndexAnnotation] }

// released waits until no pod of app holds the finalizer.
func (c *cluster) released(app string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "pods of "+app+" without finalizer", func(ctx context.Context) error {
		pods, err := c.list(ctx, app)
		for i := range pods {
			if tracked(&pods[i]) {
				return fmt.Errorf("%s has it", pods[i].Name)
			}
		}
		return err
	})
}

func tracked(pod *v1.Pod) bool { return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) }

// setPodStatus changes a pod's status as its kubelet does.
func (c *cluster) setPodStatus(name string, changes ...func(*v1.Pod)) {
	c.t.Helper()
	pods := c.client.CoreV1().Pods(c.ns)
	c.retry(func() error {
		pod, err := pods.Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(pod)
		}
		_, err = pods.UpdateStatus(c.t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
}

// changePod changes a pod as a user does.
func (c *cluster) changePod(name string, change func(*v1.Pod)) {
	c.t.Helper()
	pods := c.client.CoreV1().Pods(c.ns)
	c.retry(func() error {
		pod, err := pods.Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(pod)
		_, err = pods.Update(c.t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
}

func (c *cluster) succeed(pods ...v1.Pod) {
	c.t.Helper()
	for i := range pods {
		c.setPodStatus(pods[i].Name, finished(v1.PodSucceeded, 0, time.Now()))
	}
}

// fail lets a pod fail at an instant that may have been before.
func (c *cluster) fail(pod v1.Pod, at time.Time) {
	c.t.Helper()
	c.setPodStatus(pod.Name, finished(v1.PodFailed, 1, at))
}

func finished(phase v1.PodPhase, exitCode int32, at time.Time) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: exitCode, FinishedAt: metav1.NewTime(at)},
		}}}
	}
}

func running(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning }

func readySince(at time.Time) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Status.Phase = v1.PodRunning
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}
	}
}

// bind puts pods on a node, as the scheduler does.
func (c *cluster) bind(pods ...v1.Pod) {
	c.t.Helper()
	for i := range pods {
		binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pods[i].Name}, Target: v1.ObjectReference{Kind: "Node", Name: "n"}}
		if err := c.client.CoreV1().Pods(c.ns).Bind(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	if err := c.client.CoreV1().Pods(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// end lets a terminating pod be gone, as its kubelet does.
func (c *cluster) end(name string) {
	c.t.Helper()
	err := c.client.CoreV1().Pods(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) patchPod(name, patch string) {
	c.t.Helper()
	_, err := c.client.CoreV1().Pods(c.ns).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// waitForEvent waits for an event with this type, reason and message on a Job.
func (c *cluster) waitForEvent(job, kind, reason, message string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "event "+reason, func(ctx context.Context) error {
		list, err := c.client.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + job + ",reason=" + reason,
		})
		if err != nil {
			return err
		}
		for i := range list.Items {
			event := &list.Items[i]
			if event.Type == kind && event.Source.Component == "job-controller" && strings.HasSuffix(event.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("%d events of that reason", len(list.Items))
	})
}

// since returns how long after at the only new pod beside old was created.
func (c *cluster) since(at time.Time, app string, old ...v1.Pod) (v1.Pod, time.Duration) {
	c.t.Helper()
	var found v1.Pod
	harness.Eventually(c.t, soon, "another pod of "+app, func(ctx context.Context) error {
		pods, err := c.list(ctx, app)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			known := func(o v1.Pod) bool { return o.UID == pod.UID }
			if isActive(&pod) && !slices.ContainsFunc(old, known) {
				found = pod
				return nil
			}
		}
		return errors.New("none")
	})
	return found, found.CreationTimestamp.Sub(at)
}

// metric returns the value of a counter of the controller, summed over the
// labels that are not asked for.
func (c *cluster) metric(name string, labels map[string]string) float64 {
	c.t.Helper()
	families, err := c.controller.Metrics.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "job_controller_"+name {
			continue
		}
		for _, metric := range family.GetMetric() {
			matching := 0
			for _, label := range metric.GetLabel() {
				if value, asked := labels[label.GetName()]; asked && value == label.GetValue() {
					matching++
				}
			}
			if matching == len(labels) {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// waitForMetric waits until a counter has a value: what it counts may be seen a moment earlier.
func (c *cluster) waitForMetric(name string, labels map[string]string, want float64) {
	c.t.Helper()
	harness.Eventually(c.t, soon, fmt.Sprint("metric ", name, labels), func(context.Context) error {
		if got := c.metric(name, labels); got != want {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

// waitUntilSeen waits until the controller has seen what has happened to Jobs: it
// cares for the next one then. Pods have no order to these.
func (c *cluster) waitUntilSeen() {
	c.t.Helper()
	c.create(newJob("next", suspend))
	c.waitFor("next", "suspension", condition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", ""))
}

// writes of pods by verb.
func (c *cluster) writes(verb string) []apiproxy.Request {
	return c.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Resource == podResource && r.Verb == verb && r.Subresource == ""
	})
}
