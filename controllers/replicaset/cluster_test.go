package replicaset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is ample for a few reconciles on a busy machine.
	soon = 2 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = 2 * time.Second
)

var (
	podResource        = apischema.GroupResource{Resource: "pods"}
	replicaSetResource = apischema.GroupResource{Group: "apps", Resource: "replicasets"}
)

// cluster is a namespace with a running replicaset-controller.
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
		controller: engine.Start(replicaset.Descriptor(), nil),
		client:     engine.Admin,
		ns:         engine.Namespace,
	}
}

// newReplicaSet has selector and template label app: NAME unless changed. Its
// pods are gone as soon as they are deleted.
func newReplicaSet(name string, replicas int32, changes ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	app := map[string]string{"app": name}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: v1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers:                    []v1.Container{{Name: "c", Image: "registry.example/c"}},
				},
			},
		},
	}
	for _, change := range changes {
		change(rs)
	}
	return rs
}

// newPod is what a user may have made: a pod without owner.
func newPod(name, app string, changes ...func(*v1.Pod)) *v1.Pod {
	template := newReplicaSet(app, 0).Spec.Template
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func (c *cluster) create(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	c.t.Helper()
	created, err := c.client.AppsV1().ReplicaSets(c.ns).Create(c.t.Context(), rs, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) createPod(pod *v1.Pod) *v1.Pod {
	c.t.Helper()
	created, err := c.client.CoreV1().Pods(c.ns).Create(c.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) get(name string) *appsv1.ReplicaSet {
	c.t.Helper()
	rs, err := c.client.AppsV1().ReplicaSets(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return rs
}

func (c *cluster) scale(name string, replicas int32) {
	c.t.Helper()
	_, err := c.client.AppsV1().ReplicaSets(c.ns).UpdateScale(c.t.Context(), name,
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.ns}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}},
		metav1.UpdateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) list(ctx context.Context, app string) ([]v1.Pod, error) {
	list, err := c.client.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// activePods of app, oldest first.
func (c *cluster) activePods(ctx context.Context, app string) ([]v1.Pod, error) {
	pods, err := c.list(ctx, app)
	pods = slices.DeleteFunc(pods, func(pod v1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
	})
	slices.SortStableFunc(pods, func(a, b v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods, err
}

// waitForPods waits until app has count active pods, and returns them.
func (c *cluster) waitForPods(app string, count int) []v1.Pod {
	c.t.Helper()
	var pods []v1.Pod
	harness.Eventually(c.t, soon, fmt.Sprintf("%d pods of %s", count, app), func(ctx context.Context) error {
		var err error
		if pods, err = c.activePods(ctx, app); err != nil {
			return err
		}
		if len(pods) != count {
			return fmt.Errorf("%d active pods", len(pods))
		}
		return nil
	})
	return pods
}

// waitForStatus waits until the status of a ReplicaSet is as wanted, which is a
// function that returns what is wrong.
func (c *cluster) waitForStatus(name, what string, wrong func(appsv1.ReplicaSetStatus) string) *appsv1.ReplicaSet {
	c.t.Helper()
	var rs *appsv1.ReplicaSet
	harness.Eventually(c.t, soon, what, func(ctx context.Context) error {
		var err error
		if rs, err = c.client.AppsV1().ReplicaSets(c.ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if rs.Status.ObservedGeneration != rs.Generation {
			return fmt.Errorf("generation %d, observed %d", rs.Generation, rs.Status.ObservedGeneration)
		}
		if fault := wrong(rs.Status); fault != "" {
			return fmt.Errorf("%s: %s", fault, inJSON(rs.Status))
		}
		return nil
	})
	return rs
}

// counts wants a status with these numbers and no failure.
func counts(replicas, ready, available int32) func(appsv1.ReplicaSetStatus) string {
	return func(s appsv1.ReplicaSetStatus) string {
		if s.Replicas != replicas || s.ReadyReplicas != ready || s.AvailableReplicas != available {
			return fmt.Sprintf("want %d replicas, %d ready, %d available", replicas, ready, available)
		}
		return noFailure(s)
	}
}

func terminating(count int32) func(appsv1.ReplicaSetStatus) string {
	return func(s appsv1.ReplicaSetStatus) string {
		if s.TerminatingReplicas == nil || *s.TerminatingReplicas != count {
			return fmt.Sprintf("want %d terminating", count)
		}
		return ""
	}
}

func failed(reason string) func(appsv1.ReplicaSetStatus) string {
	return func(s appsv1.ReplicaSetStatus) string {
		for _, condition := range s.Conditions {
			if condition.Type == appsv1.ReplicaSetReplicaFailure && condition.Status == v1.ConditionTrue && condition.Reason == reason {
				return ""
			}
		}
		return "want ReplicaFailure with reason " + reason
	}
}

func noFailure(s appsv1.ReplicaSetStatus) string {
	if failed("FailedCreate")(s) == "" || failed("FailedDelete")(s) == "" {
		return "want no ReplicaFailure"
	}
	return ""
}

func all(of ...func(appsv1.ReplicaSetStatus) string) func(appsv1.ReplicaSetStatus) string {
	return func(s appsv1.ReplicaSetStatus) string {
		for _, wrong := range of {
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

func readySince(since time.Time) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Status.Phase = v1.PodRunning
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	}
}

func phase(to v1.PodPhase) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Status.Phase = to } }

func restarts(count int32) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", RestartCount: count}}
	}
}

// bind puts a pod on a node, as the scheduler does.
func (c *cluster) bind(pod, node string) {
	c.t.Helper()
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: v1.ObjectReference{Kind: "Node", Name: node}}
	if err := c.client.CoreV1().Pods(c.ns).Bind(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	if err := c.client.CoreV1().Pods(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) deleteReplicaSet(name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	err := c.client.AppsV1().ReplicaSets(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		c.t.Fatal(err)
	}
}

// finishDeletion does what the garbage collector does at the end.
func (c *cluster) finishDeletion(name string) {
	c.t.Helper()
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := c.client.AppsV1().ReplicaSets(c.ns).Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// dropOwners makes an orphan of a pod, as the garbage collector does.
func (c *cluster) dropOwners(pod string) {
	c.t.Helper()
	patch := []byte(`{"metadata":{"ownerReferences":null}}`)
	if _, err := c.client.CoreV1().Pods(c.ns).Patch(c.t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func names(pods []v1.Pod) []string {
	var out []string
	for i := range pods {
		out = append(out, pods[i].Name)
	}
	slices.Sort(out)
	return out
}

func controllerOf(pod *v1.Pod) string {
	if ref := metav1.GetControllerOf(pod); ref != nil {
		return ref.Name
	}
	return ""
}

// events by reason, with how often each was counted.
func (c *cluster) events(ctx context.Context, object, reason string) (messages []string, count int32, err error) {
	list, err := c.client.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + object + ",reason=" + reason,
	})
	if err != nil {
		return nil, 0, err
	}
	for i := range list.Items {
		event := &list.Items[i]
		messages = append(messages, event.Type+" "+event.Source.Component+" "+event.Message)
		count += max(1, event.Count)
	}
	return messages, count, nil
}
