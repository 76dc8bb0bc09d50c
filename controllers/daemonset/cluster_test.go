package daemonset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/daemonset"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is ample for a few reconciles on a busy machine, minutes for hundreds.
	soon    = 2 * time.Minute
	minutes = 5 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = time.Second
	// ownNode is the label of the nodes of a test.
	ownNode = "test.example/namespace"
)

var (
	podResource       = apischema.GroupResource{Resource: "pods"}
	daemonSetResource = apischema.GroupResource{Group: "apps", Resource: "daemonsets"}
)

// cluster is a namespace with a running daemonset-controller, which sees no
// other nodes than those that the test makes.
type cluster struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	client     kubernetes.Interface
	ns         string
}

func start(t *testing.T, nodes int) *cluster {
	t.Helper()
	cp := controlplane.Shared(t)
	ns := cp.Namespace(t)
	engine := harness.New(t, cp, harness.Options{Scope: scopeOf(ns)})
	c := &cluster{Engine: engine, t: t, client: engine.Admin, ns: ns}
	c.addNodes(nodes)
	c.controller = engine.Start(daemonset.Descriptor(), nil)
	return c
}

func scopeOf(namespace string) apiproxy.Scope {
	return apiproxy.Scope{Namespace: namespace, NodeSelector: ownNode + "=" + namespace}
}

// node is the name of the test's node number i.
func (c *cluster) node(i int) string { return fmt.Sprintf("%s-n%d", c.ns, i) }

// addNodes adds the nodes 1 … count.
func (c *cluster) addNodes(count int) {
	c.t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error { return c.makeNode(i + 1) })
	}
	if err := group.Wait(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) addNode(i int) {
	c.t.Helper()
	if err := c.makeNode(i); err != nil {
		c.t.Fatal(err)
	}
}

// makeNode makes a node without taints.
func (c *cluster) makeNode(i int) error {
	nodes := c.client.CoreV1().Nodes()
	node, err := nodes.Create(c.t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node(i)}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// The API server taints a new node. The label lets the controller see it.
	node.Spec.Taints = nil
	metav1.SetMetaDataLabel(&node.ObjectMeta, ownNode, c.ns)
	_, err = nodes.Update(c.t.Context(), node, metav1.UpdateOptions{})
	return err
}

func (c *cluster) deleteNode(i int) {
	c.t.Helper()
	if err := c.client.CoreV1().Nodes().Delete(c.t.Context(), c.node(i), metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) changeNode(i int, change func(*v1.Node)) {
	c.t.Helper()
	nodes := c.client.CoreV1().Nodes()
	c.retry(func() error {
		node, err := nodes.Get(c.t.Context(), c.node(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		_, err = nodes.Update(c.t.Context(), node, metav1.UpdateOptions{})
		return err
	})
}

func (c *cluster) taint(i int, taints ...v1.Taint) {
	c.t.Helper()
	c.changeNode(i, func(node *v1.Node) { node.Spec.Taints = taints })
}

func taint(key string, effect v1.TaintEffect) v1.Taint { return v1.Taint{Key: key, Effect: effect} }

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

// newDaemonSet has selector and template label app: NAME unless changed. Its
// pods are gone as soon as they are deleted.
func newDaemonSet(name string, changes ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	app := map[string]string{"app": name}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: v1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers:                    []v1.Container{{Name: "c", Image: "registry.example/c:1"}},
				},
			},
		},
	}
	for _, change := range changes {
		change(ds)
	}
	return ds
}

func image(to string) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "registry.example/c:" + to }
}

func onDelete(ds *appsv1.DaemonSet) {
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
}

func minReady(seconds int32) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = seconds }
}

// rolling wants one of unavailable and surge to be "0".
func rolling(unavailable, surge string) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) {
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxUnavailable: ptr.To(intstr.Parse(unavailable)),
				MaxSurge:       ptr.To(intstr.Parse(surge)),
			},
		}
	}
}

func finalizer(ds *appsv1.DaemonSet) {
	ds.Spec.Template.Finalizers = []string{"test.example/hold"}
}

func (c *cluster) create(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
	c.t.Helper()
	created, err := c.client.AppsV1().DaemonSets(c.ns).Create(c.t.Context(), ds, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) get(name string) *appsv1.DaemonSet {
	c.t.Helper()
	ds, err := c.client.AppsV1().DaemonSets(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return ds
}

func (c *cluster) change(name string, changes ...func(*appsv1.DaemonSet)) {
	c.t.Helper()
	c.retry(func() error {
		ds, err := c.client.AppsV1().DaemonSets(c.ns).Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(ds)
		}
		_, err = c.client.AppsV1().DaemonSets(c.ns).Update(c.t.Context(), ds, metav1.UpdateOptions{})
		return err
	})
}

// touch makes an event of a DaemonSet without changing what it asks for.
func (c *cluster) touch(name string) {
	c.t.Helper()
	c.change(name, func(ds *appsv1.DaemonSet) {
		metav1.SetMetaDataAnnotation(&ds.ObjectMeta, "touched", time.Now().String())
	})
}

func (c *cluster) delete(name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	err := c.client.AppsV1().DaemonSets(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		c.t.Fatal(err)
	}
}

// waitUntilSeen waits until the controller has seen what has happened to
// DaemonSets: it cares for the next one then. Other resources have no order to these.
func (c *cluster) waitUntilSeen() {
	c.t.Helper()
	c.create(newDaemonSet("next", func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.NodeSelector = map[string]string{"no": "node"}
	}))
	c.waitForStatus("next", status{})
}

// finishDeletion does what the garbage collector does at the end.
func (c *cluster) finishDeletion(name string) {
	c.t.Helper()
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := c.client.AppsV1().DaemonSets(c.ns).Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// pods of app that are not being deleted, by the number of their node.
type pods map[int][]v1.Pod

func (p pods) all() []v1.Pod {
	var all []v1.Pod
	for _, onNode := range p {
		all = append(all, onNode...)
	}
	return all
}

func (p pods) names() []string {
	var names []string
	for _, pod := range p.all() {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

// withImage are those whose container has an image with that tag.
func (p pods) withImage(tag string) []v1.Pod {
	return slices.DeleteFunc(p.all(), func(pod v1.Pod) bool { return !strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+tag) })
}

func (c *cluster) list(ctx context.Context, app string) (pods, error) {
	list, err := c.client.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	found := pods{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			node := c.numberOf(targetOf(&pod))
			found[node] = append(found[node], pod)
		}
	}
	return found, nil
}

// targetOf is the node that a pod says it is for.
func targetOf(pod *v1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) != 1 || len(required.NodeSelectorTerms[0].MatchFields) != 1 {
		return ""
	}
	return required.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

// numberOf a node, 0 for none of the test's.
func (c *cluster) numberOf(node string) int {
	var number int
	if _, err := fmt.Sscanf(strings.TrimPrefix(node, c.ns+"-n"), "%d", &number); err != nil {
		return 0
	}
	return number
}

// waitForPods waits until app has one pod on each of nodes and no other.
func (c *cluster) waitForPods(app string, nodes ...int) pods {
	c.t.Helper()
	return c.waitUntil(app, fmt.Sprintf("pods of %s on %v", app, nodes), func(found pods) string {
		for _, node := range nodes {
			if len(found[node]) != 1 {
				return fmt.Sprintf("%d pods on node %d", len(found[node]), node)
			}
		}
		if len(found) != len(nodes) {
			return fmt.Sprintf("pods on %d nodes", len(found))
		}
		return ""
	})
}

// waitUntil waits until wrong returns no fault.
func (c *cluster) waitUntil(app, what string, wrong func(pods) string) pods {
	c.t.Helper()
	var found pods
	harness.Eventually(c.t, soon, what, func(ctx context.Context) error {
		var err error
		if found, err = c.list(ctx, app); err != nil {
			return err
		}
		if fault := wrong(found); fault != "" {
			return fmt.Errorf("%s", fault)
		}
		return nil
	})
	return found
}

// always checks for a while that wrong returns no fault.
func (c *cluster) always(app, what string, wrong func(pods) string) {
	c.t.Helper()
	harness.Throughout(c.t, aWhile, what, func(ctx context.Context) error {
		found, err := c.list(ctx, app)
		if err != nil {
			return err
		}
		if fault := wrong(found); fault != "" {
			return fmt.Errorf("%s", fault)
		}
		return nil
	})
}

// same wants exactly the pods that there were.
func same(as pods) func(pods) string {
	return func(found pods) string {
		if !slices.Equal(as.names(), found.names()) {
			return fmt.Sprintf("want %v, got %v", as.names(), found.names())
		}
		return ""
	}
}

// images wants so many pods with the image tags 1 and 2.
func images(one, two int) func(pods) string {
	return func(found pods) string {
		if len(found.withImage("1")) != one || len(found.withImage("2")) != two {
			return fmt.Sprintf("%d pods with image 1, %d with image 2; want %d and %d",
				len(found.withImage("1")), len(found.withImage("2")), one, two)
		}
		return ""
	}
}

// status that is waited for.
type status struct{ desired, current, misscheduled, ready, updated, available int32 }

func (c *cluster) waitForStatus(name string, want status) *appsv1.DaemonSet {
	c.t.Helper()
	var ds *appsv1.DaemonSet
	harness.Eventually(c.t, minutes, "the status of "+name, func(ctx context.Context) error {
		var err error
		if ds, err = c.client.AppsV1().DaemonSets(c.ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		s := ds.Status
		got := status{
			s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberMisscheduled, s.NumberReady,
			s.UpdatedNumberScheduled, s.NumberAvailable,
		}
		if got != want || s.ObservedGeneration != ds.Generation || s.NumberUnavailable != want.desired-want.available {
			return fmt.Errorf("generation %d, status %s", ds.Generation, inJSON(s))
		}
		return nil
	})
	return ds
}

// known waits until the controller knows that all pods are available. A roll-out
// replaces those at once that it knows not to be, whatever they are by then.
func (c *cluster) known(name string, nodes int32) {
	c.t.Helper()
	c.waitForStatus(name, status{nodes, nodes, 0, nodes, nodes, nodes})
}

func inJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// createPod creates a pod of app by hand, for a node if that is not 0.
func (c *cluster) createPod(name, app string, node int, changes ...func(*v1.Pod)) *v1.Pod {
	c.t.Helper()
	template := newDaemonSet(app).Spec.Template
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec}
	if node != 0 {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{c.node(node)}}},
			}}},
		}}
	}
	for _, change := range changes {
		change(pod)
	}
	created, err := c.client.CoreV1().Pods(c.ns).Create(c.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) changePod(name string, change func(*v1.Pod)) {
	c.t.Helper()
	api := c.client.CoreV1().Pods(c.ns)
	c.retry(func() error {
		pod, err := api.Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(pod)
		_, err = api.Update(c.t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
}

// setPodStatus changes the status of pods as their kubelets do.
func (c *cluster) setPodStatus(change func(*v1.Pod), of ...v1.Pod) {
	c.t.Helper()
	api := c.client.CoreV1().Pods(c.ns)
	for i := range of {
		c.retry(func() error {
			pod, err := api.Get(c.t.Context(), of[i].Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(pod)
			_, err = api.UpdateStatus(c.t.Context(), pod, metav1.UpdateOptions{})
			return err
		})
	}
}

func phase(to v1.PodPhase) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Status.Phase = to } }

func ready(pod *v1.Pod) {
	pod.Status.Phase = v1.PodRunning
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
}

func notReady(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.Now()}}
}

// bind puts a pod on its node, as the scheduler does.
func (c *cluster) bind(pod *v1.Pod) {
	c.t.Helper()
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: v1.ObjectReference{Kind: "Node", Name: targetOf(pod)}}
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

// dropOwners makes an orphan of a pod, as the garbage collector does.
func (c *cluster) dropOwners(pod string) {
	c.t.Helper()
	patch := []byte(`{"metadata":{"ownerReferences":null}}`)
	if _, err := c.client.CoreV1().Pods(c.ns).Patch(c.t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func controllerOf(pod *v1.Pod) string {
	if ref := metav1.GetControllerOf(pod); ref != nil {
		return ref.Name
	}
	return ""
}

// startReady creates a DaemonSet, makes its pods ready, and waits until they are available.
func (c *cluster) startReady(ds *appsv1.DaemonSet, nodes ...int) pods {
	c.t.Helper()
	c.create(ds)
	c.setPodStatus(ready, c.waitForPods(ds.Name, nodes...).all()...)
	count := int32(len(nodes))
	c.waitForStatus(ds.Name, status{count, count, 0, count, count, count})
	found, err := c.list(c.t.Context(), ds.Name)
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// events of a reason, with how often each was counted.
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

// waitForEvent waits for an event with that text in type, component and message.
func (c *cluster) waitForEvent(object, reason, text string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, reason+" event", func(ctx context.Context) error {
		messages, _, err := c.events(ctx, object, reason)
		if err != nil {
			return err
		}
		for _, message := range messages {
			if strings.Contains(message, text) {
				return nil
			}
		}
		return fmt.Errorf("no %q in %q", text, messages)
	})
}

// revisions of app, by the image tag in them.
func (c *cluster) revisions(ctx context.Context, app string) ([]appsv1.ControllerRevision, error) {
	list, err := c.client.AppsV1().ControllerRevisions(c.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return list.Items, nil
}
