package statefulset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/statefulset"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is ample for a few reconciles on a busy machine.
	soon = 2 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = time.Second
	// hold is a finalizer that keeps what is deleted.
	hold = "example.com/hold"
)

var (
	podResource      = apischema.GroupResource{Resource: "pods"}
	claimResource    = apischema.GroupResource{Resource: "persistentvolumeclaims"}
	revisionResource = apischema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
	setResource      = apischema.GroupResource{Group: "apps", Resource: "statefulsets"}
)

// cluster is a namespace with a running statefulset-controller.
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
		controller: engine.Start(statefulset.Descriptor(), nil),
		client:     engine.Admin,
		ns:         engine.Namespace,
	}
}

// succeed starts another process in the place of the first, which knows nothing
// of what has happened meanwhile but what the API server has.
func (c *cluster) succeed() {
	c.t.Helper()
	c.Engine = harness.New(c.t, controlplane.Shared(c.t), harness.Options{Scope: apiproxy.Scope{Namespace: c.ns}})
	c.controller = c.Start(statefulset.Descriptor(), nil)
}

// newSet has selector and template label app: NAME, and one claim template,
// data, unless changed. Its pods are gone as soon as they are deleted.
func newSet(name string, replicas int32, changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	app := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:    ptr.To(replicas),
			ServiceName: name,
			Selector:    &metav1.LabelSelector{MatchLabels: app},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: v1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers:                    []v1.Container{{Name: "c", Image: "registry.example/c:1"}},
				},
			},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: v1.PersistentVolumeClaimSpec{
					AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

func parallel(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func strategy(of appsv1.StatefulSetUpdateStrategyType) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: of} }
}

func partition(at int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(at)}
	}
}

func image(tag string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.Template.Spec.Containers[0].Image = "registry.example/c:" + tag
	}
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(n) }
}

const (
	retain    = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	deleteToo = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

func retention(whenScaled, whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: whenScaled, WhenDeleted: whenDeleted,
		}
	}
}

func (c *cluster) create(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	c.t.Helper()
	created, err := c.client.AppsV1().StatefulSets(c.ns).Create(c.t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) get(name string) *appsv1.StatefulSet {
	c.t.Helper()
	set, err := c.client.AppsV1().StatefulSets(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return set
}

// change changes a set as a user does.
func (c *cluster) change(name string, changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	c.t.Helper()
	for {
		set := c.get(name)
		for _, change := range changes {
			change(set)
		}
		changed, err := c.client.AppsV1().StatefulSets(c.ns).Update(c.t.Context(), set, metav1.UpdateOptions{})
		if err == nil {
			return changed
		}
		if !apierrors.IsConflict(err) {
			c.t.Fatal(err)
		}
	}
}

// deleteSet deletes a set, whose dependants stay as long as the garbage
// collector, which is the test, leaves them.
func (c *cluster) deleteSet(name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	if err := c.client.AppsV1().StatefulSets(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		c.t.Fatal(err)
	}
}

// pod returns a pod, or nil.
func (c *cluster) pod(ctx context.Context, name string) (*v1.Pod, error) {
	pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// waitForPod waits for a pod that is not one of not, and is as wanted.
func (c *cluster) waitForPod(name string, wanted ...func(*v1.Pod) string) *v1.Pod {
	c.t.Helper()
	var found *v1.Pod
	harness.Eventually(c.t, soon, "pod "+name, func(ctx context.Context) error {
		pod, err := c.pod(ctx, name)
		if err != nil {
			return err
		}
		if pod == nil {
			return fmt.Errorf("there is none")
		}
		for _, want := range wanted {
			if fault := want(pod); fault != "" {
				return fmt.Errorf("%s: %s", fault, inJSON(pod))
			}
		}
		found = pod
		return nil
	})
	return found
}

// notUID wants another pod than those.
func notUID(uids ...types.UID) func(*v1.Pod) string {
	return func(pod *v1.Pod) string {
		if slices.Contains(uids, pod.UID) {
			return "want another pod"
		}
		return ""
	}
}

func hasImage(tag string) func(*v1.Pod) string {
	return func(pod *v1.Pod) string {
		if pod.Spec.Containers[0].Image != "registry.example/c:"+tag {
			return "want image " + tag
		}
		return ""
	}
}

// names of the pods of the namespace, in order.
func (c *cluster) names(ctx context.Context) (string, error) {
	list, err := c.client.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	all := make([]string, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	slices.Sort(all)
	return strings.Join(all, " "), nil
}

// has wants exactly these pods in the namespace.
func (c *cluster) has(pods string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := c.names(ctx)
		if err == nil && got != pods {
			err = fmt.Errorf("pods: %s, want: %s", got, pods)
		}
		return err
	}
}

func (c *cluster) waitForPods(pods string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "pods "+pods, c.has(pods))
}

func (c *cluster) stays(pods string) {
	c.t.Helper()
	harness.Throughout(c.t, aWhile, "pods "+pods, c.has(pods))
}

func (c *cluster) uid(pod string) types.UID {
	c.t.Helper()
	return c.waitForPod(pod).UID
}

// setPhase changes a pod's status as its kubelet does. The pod must exist.
func (c *cluster) setPhase(pod string, phase v1.PodPhase, ready bool, since time.Time) {
	c.t.Helper()
	if err := setPhase(c.t.Context(), c.client, c.ns, pod, phase, ready, since); err != nil {
		c.t.Fatal(err)
	}
}

func setPhase(ctx context.Context, client kubernetes.Interface, ns, pod string, phase v1.PodPhase, ready bool, since time.Time) error {
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	patch := fmt.Appendf(nil, `{"status":{"phase":%q,"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`,
		phase, status, since.UTC().Format(time.RFC3339))
	_, err := client.CoreV1().Pods(ns).Patch(ctx, pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// ready waits for pods and makes them ready.
func (c *cluster) ready(pods ...string) {
	c.t.Helper()
	for _, pod := range pods {
		c.waitForPod(pod)
		c.setPhase(pod, v1.PodRunning, true, time.Now().Add(-time.Minute))
	}
}

func (c *cluster) notReady(pods ...string) {
	c.t.Helper()
	for _, pod := range pods {
		c.setPhase(pod, v1.PodRunning, false, time.Now())
	}
}

func (c *cluster) deletePod(pod string) {
	c.t.Helper()
	if err := c.client.CoreV1().Pods(c.ns).Delete(c.t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// patchPod is a merge patch.
func (c *cluster) patchPod(pod, patch string) {
	c.t.Helper()
	_, err := c.client.CoreV1().Pods(c.ns).Patch(c.t.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) holdPod(pod string) { c.patchPod(pod, `{"metadata":{"finalizers":["`+hold+`"]}}`) }
func (c *cluster) freePod(pod string) { c.patchPod(pod, `{"metadata":{"finalizers":null}}`) }

// claim returns a claim, or nil.
func (c *cluster) claim(ctx context.Context, name string) (*v1.PersistentVolumeClaim, error) {
	claim, err := c.client.CoreV1().PersistentVolumeClaims(c.ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

func (c *cluster) patchClaim(name, patch string) {
	c.t.Helper()
	_, err := c.client.CoreV1().PersistentVolumeClaims(c.ns).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// deleteClaim deletes a claim that no pod uses, as pvc-protection sees it.
func (c *cluster) deleteClaim(name string) {
	c.t.Helper()
	if err := c.client.CoreV1().PersistentVolumeClaims(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.patchClaim(name, `{"metadata":{"finalizers":null}}`)
}

// owners of a claim as KIND/NAME, those that do not control it in brackets.
func (c *cluster) waitForOwners(claim, want string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "owners of "+claim, func(ctx context.Context) error {
		found, err := c.claim(ctx, claim)
		if err != nil || found == nil {
			return fmt.Errorf("claim %v: %w", found, err)
		}
		if got := owners(found); got != want {
			return fmt.Errorf("owners: %s, want: %s", got, want)
		}
		return nil
	})
}

func owners(object metav1.Object) string {
	var all []string
	for _, ref := range object.GetOwnerReferences() {
		name := ref.Kind + "/" + ref.Name
		if ref.Controller == nil || !*ref.Controller {
			name = "(" + name + ")"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// waitForStatus waits until the status of a set, of its present generation, is
// as wanted, which is a function that returns what is wrong.
func (c *cluster) waitForStatus(name, what string, wrong func(*appsv1.StatefulSet) string) *appsv1.StatefulSet {
	c.t.Helper()
	var set *appsv1.StatefulSet
	harness.Eventually(c.t, soon, what, func(ctx context.Context) error {
		var err error
		if set, err = c.client.AppsV1().StatefulSets(c.ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if set.Status.ObservedGeneration != set.Generation {
			return fmt.Errorf("generation %d, observed %d", set.Generation, set.Status.ObservedGeneration)
		}
		if fault := wrong(set); fault != "" {
			return fmt.Errorf("%s: %s", fault, inJSON(set.Status))
		}
		return nil
	})
	return set
}

// counts wants replicas, readyReplicas, availableReplicas, currentReplicas, updatedReplicas.
func counts(replicas, ready, available, current, updated int32) func(*appsv1.StatefulSet) string {
	return func(set *appsv1.StatefulSet) string {
		s := set.Status
		got := []int32{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas}
		if want := []int32{replicas, ready, available, current, updated}; !slices.Equal(got, want) {
			return fmt.Sprintf("counts %v, want %v", got, want)
		}
		return ""
	}
}

// complete wants n pods, all of the update revision and available.
func complete(n int32) func(*appsv1.StatefulSet) string {
	return func(set *appsv1.StatefulSet) string {
		if set.Status.CurrentRevision != set.Status.UpdateRevision {
			return "want the current revision to be the update revision"
		}
		return counts(n, n, n, n, n)(set)
	}
}

// running creates a set whose pods are all ready.
func (c *cluster) running(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	c.t.Helper()
	c.create(set)
	for i := range *set.Spec.Replicas {
		c.ready(fmt.Sprint(set.Name, "-", i))
	}
	return c.waitForStatus(set.Name, "a complete set", complete(*set.Spec.Replicas))
}

// revisions of the namespace, by number.
func (c *cluster) revisions(ctx context.Context) ([]appsv1.ControllerRevision, error) {
	list, err := c.client.AppsV1().ControllerRevisions(c.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return list.Items, nil
}

func (c *cluster) waitForRevisions(numbers ...int64) []appsv1.ControllerRevision {
	c.t.Helper()
	var found []appsv1.ControllerRevision
	harness.Eventually(c.t, soon, fmt.Sprint("revisions ", numbers), func(ctx context.Context) error {
		var err error
		if found, err = c.revisions(ctx); err != nil {
			return err
		}
		var got []int64
		for i := range found {
			got = append(got, found[i].Revision)
		}
		if !slices.Equal(got, numbers) {
			return fmt.Errorf("revisions %v", got)
		}
		return nil
	})
	return found
}

// waitForEvent waits for an event of a set.
func (c *cluster) waitForEvent(set, kind, reason, message string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "event "+reason, func(ctx context.Context) error {
		list, err := c.client.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=StatefulSet,involvedObject.name=" + set + ",reason=" + reason,
		})
		if err != nil {
			return err
		}
		var got []string
		for i := range list.Items {
			event := &list.Items[i]
			if event.Type == kind && strings.Contains(event.Message, message) && event.Source.Component == "statefulset-controller" {
				return nil
			}
			got = append(got, event.Type+" "+event.Message)
		}
		return fmt.Errorf("events: %s", strings.Join(got, "; "))
	})
}

func inJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func revisionOf(pod *v1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }
