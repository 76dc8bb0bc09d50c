package deployment_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/deployment"
	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{Audit: true})) }

const (
	// soon is ample for twenty rollouts on a busy machine.
	soon = 5 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = 2 * time.Second

	revision        = "deployment.kubernetes.io/revision"
	revisionHistory = "deployment.kubernetes.io/revision-history"
	desiredReplicas = "deployment.kubernetes.io/desired-replicas"
	maxReplicas     = "deployment.kubernetes.io/max-replicas"
	hashLabel       = "pod-template-hash"
)

// cluster is a namespace with running deployment- and replicaset-controllers.
type cluster struct {
	*harness.Engine
	t           *testing.T
	deployments *harness.Instance
	replicaSets *harness.Instance
	client      kubernetes.Interface
	ns          string
}

func start(t *testing.T) *cluster {
	t.Helper()
	engine := harness.New(t, controlplane.Shared(t), harness.Options{})
	return &cluster{
		Engine:      engine,
		t:           t,
		replicaSets: engine.Start(replicaset.Descriptor(), nil),
		deployments: engine.Start(deployment.Descriptor(), nil),
		client:      engine.Admin,
		ns:          engine.Namespace,
	}
}

// newDeployment selects and makes pods with the label app: NAME, which are gone
// as soon as they are deleted.
func newDeployment(name string, replicas int32, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	app := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers:                    []corev1.Container{{Name: "c", Image: "registry.example/c:1"}},
				},
			},
		},
	}
	for _, change := range changes {
		change(d)
	}
	return d
}

func image(tag string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example/c:" + tag }
}

// rolling sets the bounds of a rollout, as numbers or percentages.
func rolling(surge, unavailable string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.Parse(surge)), MaxUnavailable: ptr.To(intstr.Parse(unavailable)),
			},
		}
	}
}

func paused(p bool) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Paused = p }
}

func deadline(seconds int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &seconds }
}

func annotated(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value) }
}

func (c *cluster) create(d *appsv1.Deployment) *appsv1.Deployment {
	c.t.Helper()
	created, err := c.client.AppsV1().Deployments(c.ns).Create(c.t.Context(), d, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) update(name string, changes ...func(*appsv1.Deployment)) {
	c.t.Helper()
	c.retry(func() error {
		d, err := c.client.AppsV1().Deployments(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(d)
		}
		_, err = c.client.AppsV1().Deployments(c.ns).Update(c.t.Context(), d, metav1.UpdateOptions{})
		return err
	})
}

func (c *cluster) scale(name string, replicas int32) {
	c.t.Helper()
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.ns}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	}
	if _, err := c.client.AppsV1().Deployments(c.ns).UpdateScale(c.t.Context(), name, scale, metav1.UpdateOptions{}); err != nil {
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

// waitFor waits until a Deployment, seen by the controller, is as wanted: wrong
// returns what is not.
func (c *cluster) waitFor(name, what string, wrong func(*appsv1.Deployment) string) *appsv1.Deployment {
	c.t.Helper()
	var d *appsv1.Deployment
	harness.Eventually(c.t, soon, what, func(ctx context.Context) error {
		var err error
		if d, err = c.client.AppsV1().Deployments(c.ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("generation %d, observed %d", d.Generation, d.Status.ObservedGeneration)
		}
		if fault := wrong(d); fault != "" {
			return fmt.Errorf("%s: %s", fault, inJSON(d.Status))
		}
		return nil
	})
	return d
}

// complete wants all replicas of the current template, available.
func complete(d *appsv1.Deployment) string {
	want := *d.Spec.Replicas
	if s := d.Status; s.Replicas != want || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.UnavailableReplicas != 0 {
		return fmt.Sprintf("not complete with %d replicas", want)
	}
	return ""
}

// condition wants a condition with status and reason.
func condition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) func(*appsv1.Deployment) string {
	return func(d *appsv1.Deployment) string {
		for _, c := range d.Status.Conditions {
			if c.Type == kind && c.Status == status && c.Reason == reason {
				return ""
			}
		}
		return fmt.Sprintf("want %s %s with reason %s", kind, status, reason)
	}
}

func noCondition(kind appsv1.DeploymentConditionType) func(*appsv1.Deployment) string {
	return func(d *appsv1.Deployment) string {
		if slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind }) {
			return fmt.Sprintf("want no %s", kind)
		}
		return ""
	}
}

func progressing(status corev1.ConditionStatus, reason string) func(*appsv1.Deployment) string {
	return condition(appsv1.DeploymentProgressing, status, reason)
}

func all(of ...func(*appsv1.Deployment) string) func(*appsv1.Deployment) string {
	return func(d *appsv1.Deployment) string {
		for _, wrong := range of {
			if fault := wrong(d); fault != "" {
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

// sets are the ReplicaSets of a Deployment, oldest first.
func (c *cluster) sets(ctx context.Context, name string) ([]*appsv1.ReplicaSet, error) {
	list, err := c.client.AppsV1().ReplicaSets(c.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var sets []*appsv1.ReplicaSet
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == name {
			sets = append(sets, &list.Items[i])
		}
	}
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return sets, nil
}

// ofImage finds the ReplicaSet with an image.
func ofImage(sets []*appsv1.ReplicaSet, tag string) *appsv1.ReplicaSet {
	for _, rs := range sets {
		if rs.Spec.Template.Spec.Containers[0].Image == "registry.example/c:"+tag {
			return rs
		}
	}
	return nil
}

// sizes waits until the ReplicaSets of a Deployment have these sizes by image
// tag, and no others have replicas, and that they keep them for a while.
func (c *cluster) sizes(name string, want map[string]int32) []*appsv1.ReplicaSet {
	c.t.Helper()
	var sets []*appsv1.ReplicaSet
	check := func(ctx context.Context) error {
		var err error
		if sets, err = c.sets(ctx, name); err != nil {
			return err
		}
		got := map[string]int32{}
		for _, rs := range sets {
			tag := strings.TrimPrefix(rs.Spec.Template.Spec.Containers[0].Image, "registry.example/c:")
			got[tag] += *rs.Spec.Replicas
		}
		for tag, size := range got {
			if want[tag] != size {
				return fmt.Errorf("sizes %v, want %v", got, want)
			}
		}
		for tag, size := range want {
			if seen, ok := got[tag]; !ok || seen != size {
				return fmt.Errorf("sizes %v, want %v", got, want)
			}
		}
		return nil
	}
	harness.Eventually(c.t, soon, fmt.Sprintf("replica sets of sizes %v", want), check)
	harness.Throughout(c.t, aWhile, fmt.Sprintf("replica sets of sizes %v", want), check)
	return sets
}

// pods of an app that are not being deleted.
func (c *cluster) pods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// runPods plays the kubelet until the test ends: pods for which keep is true become ready.
func (c *cluster) runPods(keep func(*corev1.Pod) bool) {
	c.t.Helper()
	c.followPods(func(ctx context.Context, pods cache.Store, pod *corev1.Pod) {
		if pod.DeletionTimestamp != nil || len(pod.Status.Conditions) > 0 || !keep(pod) {
			return
		}
		if _, there, err := pods.Get(pod); err != nil || !there {
			return
		}
		err := c.setReady(ctx, pod.DeepCopy())
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			c.t.Errorf("make pod %s ready: %v", pod.Name, err)
		}
	})
}

// followPods calls changed for every event of a pod, deletions included, until
// it is ended, by the end of the test at the latest.
func (c *cluster) followPods(changed func(ctx context.Context, pods cache.Store, pod *corev1.Pod)) (end func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.ns))
	informer := factory.Core().V1().Pods().Informer()
	call := func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok && ctx.Err() == nil {
			changed(ctx, informer.GetStore(), pod)
		}
	}
	factory.Start(ctx.Done())
	end = func() { cancel(); factory.Shutdown() }
	c.t.Cleanup(end)
	// Handlers come last, so that the store is complete at their first call.
	factory.WaitForCacheSync(ctx.Done())
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: call, UpdateFunc: func(_, obj any) { call(obj) }, DeleteFunc: call,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return end
}

func (c *cluster) setReady(ctx context.Context, pod *corev1.Pod) error {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	_, err := c.client.CoreV1().Pods(c.ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func everyPod(*corev1.Pod) bool { return true }

// podsOf is for pods with one of these image tags.
func podsOf(tags ...string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return slices.Contains(tags, strings.TrimPrefix(p.Spec.Containers[0].Image, "registry.example/c:"))
	}
}

// patchSet changes a ReplicaSet by a merge patch.
func (c *cluster) patchSet(name, patch string) {
	c.t.Helper()
	_, err := c.client.AppsV1().ReplicaSets(c.ns).
		Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// events are the messages on a Deployment with a reason.
func (c *cluster) events(ctx context.Context, name, reason string) ([]string, error) {
	list, err := c.client.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Deployment,involvedObject.name=" + name + ",reason=" + reason,
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

func (c *cluster) waitForEvent(name, reason, want string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "event "+want, func(ctx context.Context) error {
		messages, err := c.events(ctx, name, reason)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, want) }) {
			return fmt.Errorf("got %q", messages)
		}
		return nil
	})
}

func (c *cluster) delete(name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	if err := c.client.AppsV1().Deployments(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		c.t.Fatal(err)
	}
}
