// Package servicefixture makes Services, pods and nodes for the tests of
// controllers that keep endpoints, and looks at what they make of them.
package servicefixture

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// Soon is ample for a few reconciles on a busy machine.
	Soon = 2 * time.Minute
	// AWhile is how long something must not happen.
	AWhile = 2 * time.Second
)

// Resources that are written.
var (
	Slices    = schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	Endpoints = schema.GroupResource{Resource: "endpoints"}
)

// World is a namespace with nodes of its own.
type World struct {
	*harness.Engine
	T *testing.T
}

// DualStack are flags of an API server that gives Services addresses of both families.
var DualStack = []string{"--service-cluster-ip-range=10.0.0.0/16,fd00:10::/112"}

// nodeLabel is on the nodes of a World, whose value is its namespace.
const nodeLabel = "servicefixture"

// New makes a world whose controllers see its namespace and its nodes alone.
func New(t *testing.T, o harness.Options) *World {
	t.Helper()
	cp := controlplane.Shared(t)
	if o.Scope.Namespace == "" {
		o.Scope.Namespace = cp.Namespace(t)
	}
	o.Scope.NodeSelector = nodeLabel + "=" + o.Scope.Namespace
	return &World{Engine: harness.New(t, cp, o), T: t}
}

// Node is the name of a node of this world.
func (w *World) Node(name string) string { return w.Namespace + "." + name }

// MakeNode makes a node that is ready and has 4 CPUs.
func (w *World) MakeNode(name, zone string) {
	w.T.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Node(name), Labels: map[string]string{nodeLabel: w.Namespace}}}
	if zone != "" {
		node.Labels[v1.LabelTopologyZone] = zone
	}
	node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	created, err := w.Admin.CoreV1().Nodes().Create(w.T.Context(), node, metav1.CreateOptions{})
	w.must(err)
	created.Status = node.Status
	_, err = w.Admin.CoreV1().Nodes().UpdateStatus(w.T.Context(), created, metav1.UpdateOptions{})
	w.must(err)
}

// ChangeNode changes labels and status of a node.
func (w *World) ChangeNode(name string, change func(*v1.Node)) {
	w.T.Helper()
	nodes := w.Admin.CoreV1().Nodes()
	w.Retry(func() error {
		node, err := nodes.Get(w.T.Context(), w.Node(name), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		updated, err := nodes.Update(w.T.Context(), node, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		updated.Status = node.Status
		_, err = nodes.UpdateStatus(w.T.Context(), updated, metav1.UpdateOptions{})
		return err
	})
}

// NodeReady changes a node's condition.
func NodeReady(status v1.ConditionStatus) func(*v1.Node) {
	return func(node *v1.Node) {
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
	}
}

// MakeService makes a Service that selects app: NAME, and whose port http leads
// from 80 to 8080, unless changed.
func (w *World) MakeService(name string, changes ...func(*v1.Service)) *v1.Service {
	w.T.Helper()
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, change := range changes {
		change(service)
	}
	created, err := w.Admin.CoreV1().Services(w.Namespace).Create(w.T.Context(), service, metav1.CreateOptions{})
	w.must(err)
	return created
}

// ChangeService changes a Service.
func (w *World) ChangeService(name string, change func(*v1.Service)) {
	w.T.Helper()
	services := w.Admin.CoreV1().Services(w.Namespace)
	w.Retry(func() error {
		service, err := services.Get(w.T.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(service)
		_, err = services.Update(w.T.Context(), service, metav1.UpdateOptions{})
		return err
	})
}

// DeleteService deletes a Service.
func (w *World) DeleteService(name string) {
	w.T.Helper()
	w.must(w.Admin.CoreV1().Services(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}))
}

// Headless makes a Service one without cluster IP.
func Headless(service *v1.Service) { service.Spec.ClusterIP = v1.ClusterIPNone }

// Families of a Service.
func Families(families ...v1.IPFamily) func(*v1.Service) {
	return func(service *v1.Service) {
		service.Spec.IPFamilies = families
		service.Spec.IPFamilyPolicy = ptr.To(v1.IPFamilyPolicySingleStack)
		if len(families) > 1 {
			service.Spec.IPFamilyPolicy = ptr.To(v1.IPFamilyPolicyRequireDualStack)
		}
	}
}

// All pods have a label of a track beside app.
const (
	trackLabel = "track"
	firstTrack = "first"
)

// MakePod makes a pod with label app on node n1, which is ready and has these addresses.
func (w *World) MakePod(name, app string, ips []string, changes ...func(*v1.Pod)) *v1.Pod {
	w.T.Helper()
	created, err := w.makePod(name, app, ips, changes...)
	w.must(err)
	return created
}

// MakePods makes so many pods at once, as MakePod does.
func (w *World) MakePods(count int, of func(i int) (name, app string, ips []string)) {
	w.T.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error {
			name, app, ips := of(i)
			_, err := w.makePod(name, app, ips)
			return err
		})
	}
	w.must(group.Wait())
}

func (w *World) makePod(name, app string, ips []string, changes ...func(*v1.Pod)) (*v1.Pod, error) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app, trackLabel: firstTrack}},
		Spec: v1.PodSpec{
			NodeName:   w.Node("n1"),
			Containers: []v1.Container{{Name: "c", Image: "registry.example/c"}},
		},
	}
	Ready(true)(pod)
	Addresses(ips...)(pod)
	for _, change := range changes {
		change(pod)
	}
	created, err := w.Admin.CoreV1().Pods(w.Namespace).Create(w.T.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	created.Status = pod.Status
	return w.Admin.CoreV1().Pods(w.Namespace).UpdateStatus(w.T.Context(), created, metav1.UpdateOptions{})
}

// Ready makes a pod run, ready or not.
func Ready(ready bool) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		status := v1.ConditionFalse
		if ready {
			status = v1.ConditionTrue
		}
		pod.Status.Phase = v1.PodRunning
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	}
}

// Phase of a pod.
func Phase(phase v1.PodPhase) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Status.Phase = phase } }

// Addresses of a pod.
func Addresses(ips ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Status.PodIP, pod.Status.PodIPs = "", nil
		for _, ip := range ips {
			pod.Status.PodIPs = append(pod.Status.PodIPs, v1.PodIP{IP: ip})
		}
		if len(ips) > 0 {
			pod.Status.PodIP = ips[0]
		}
	}
}

// OnNode binds a pod to a node of this world; an empty name to none.
func (w *World) OnNode(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.NodeName = ""
		if name != "" {
			pod.Spec.NodeName = w.Node(name)
		}
	}
}

// Port gives the pod's container a named port.
func Port(name string, number int32) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports,
			v1.ContainerPort{Name: name, ContainerPort: number, Protocol: v1.ProtocolTCP})
	}
}

// SetPodStatus changes a pod's status as its kubelet does.
func (w *World) SetPodStatus(name string, changes ...func(*v1.Pod)) {
	w.T.Helper()
	w.changePod(name, changes, w.Admin.CoreV1().Pods(w.Namespace).UpdateStatus)
}

// ChangePod changes a pod's metadata as a user does.
func (w *World) ChangePod(name string, changes ...func(*v1.Pod)) {
	w.T.Helper()
	w.changePod(name, changes, w.Admin.CoreV1().Pods(w.Namespace).Update)
}

func (w *World) changePod(name string, changes []func(*v1.Pod),
	update func(context.Context, *v1.Pod, metav1.UpdateOptions) (*v1.Pod, error),
) {
	w.T.Helper()
	w.Retry(func() error {
		pod, err := w.Admin.CoreV1().Pods(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(pod)
		}
		_, err = update(w.T.Context(), pod, metav1.UpdateOptions{})
		return err
	})
}

// DeletePod begins a pod's deletion, which its kubelet would finish.
func (w *World) DeletePod(name string) {
	w.T.Helper()
	w.must(w.Admin.CoreV1().Pods(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}))
}

// RemovePod deletes a pod at once.
func (w *World) RemovePod(name string) {
	w.T.Helper()
	w.must(w.Admin.CoreV1().Pods(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}

// PatchSlice merges JSON into a slice.
func (w *World) PatchSlice(name, patch string) {
	w.T.Helper()
	_, err := w.Admin.DiscoveryV1().EndpointSlices(w.Namespace).
		Patch(w.T.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

// SlicesOf a Service that manager looks after, ordered by family and name.
func (w *World) SlicesOf(ctx context.Context, service, manager string) ([]discovery.EndpointSlice, error) {
	list, err := w.Admin.DiscoveryV1().EndpointSlices(w.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discovery.LabelServiceName + "=" + service + "," + discovery.LabelManagedBy + "=" + manager,
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b discovery.EndpointSlice) int {
		switch {
		case a.AddressType+"/"+discovery.AddressType(a.Name) < b.AddressType+"/"+discovery.AddressType(b.Name):
			return -1
		default:
			return 1
		}
	})
	return list.Items, nil
}

// AwaitSlices waits until right accepts the slices of a Service, and returns them.
func (w *World) AwaitSlices(service, manager, what string, right func([]discovery.EndpointSlice) error) []discovery.EndpointSlice {
	w.T.Helper()
	var found []discovery.EndpointSlice
	harness.Eventually(w.T, Soon, what, func(ctx context.Context) error {
		var err error
		if found, err = w.SlicesOf(ctx, service, manager); err != nil {
			return err
		}
		if err := right(found); err != nil {
			return fmt.Errorf("%w: %s", err, DescribeSlices(found))
		}
		return nil
	})
	return found
}

// DescribeSlices in a line.
func DescribeSlices(all []discovery.EndpointSlice) string {
	text := fmt.Sprintf("%d slices", len(all))
	for i := range all {
		text += fmt.Sprintf("; %s %s %v:", all[i].Name, all[i].AddressType, all[i].Labels)
		for j := range all[i].Ports {
			text += fmt.Sprintf(" %s/%d", ptr.Deref(all[i].Ports[j].Name, ""), ptr.Deref(all[i].Ports[j].Port, 0))
		}
		for j := range all[i].Endpoints {
			text += " " + DescribeEndpoint(&all[i].Endpoints[j])
		}
	}
	return text
}

// DescribeEndpoint as ADDRESS with R, S and T for ready, serving and terminating.
func DescribeEndpoint(e *discovery.Endpoint) string {
	text := fmt.Sprint(e.Addresses)
	for _, c := range []struct {
		is   *bool
		sign string
	}{{e.Conditions.Ready, "R"}, {e.Conditions.Serving, "S"}, {e.Conditions.Terminating, "T"}} {
		if ptr.Deref(c.is, false) {
			text += c.sign
		}
	}
	return text
}

// Events of an object with a reason: type, component and message of each.
func (w *World) Events(ctx context.Context, object, reason string) ([]string, error) {
	list, err := w.Admin.CoreV1().Events(w.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + object + ",reason=" + reason,
	})
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range list.Items {
		event := &list.Items[i]
		all = append(all, event.Type+" "+event.Source.Component+" "+event.Message)
	}
	return all, nil
}

// AwaitEvent waits for an event.
func (w *World) AwaitEvent(object, reason, want string) {
	w.T.Helper()
	harness.Eventually(w.T, Soon, "event "+reason, func(ctx context.Context) error {
		all, err := w.Events(ctx, object, reason)
		if err != nil || slices.Contains(all, want) {
			return err
		}
		return fmt.Errorf("want %q among %q", want, all)
	})
}

// WritesOf returns the answered writes of a resource from a number on.
func (w *World) WritesOf(resource schema.GroupResource, from int) []apiproxy.Request {
	w.T.Helper()
	return w.Writes(resource)[from:]
}

// NoWrites fails the test when there are more writes of a resource from the
// beginning of what acts do until a while afterwards. What was awaited before
// need not be all that a controller has to write; see Idle.
func (w *World) NoWrites(resource schema.GroupResource, what string, acts ...func()) {
	w.T.Helper()
	before := len(w.Writes(resource))
	for _, act := range acts {
		act()
	}
	harness.Throughout(w.T, AWhile, what, func(context.Context) error {
		if more := w.WritesOf(resource, before); len(more) > 0 {
			return fmt.Errorf("written: %+v", more)
		}
		return nil
	})
}

// Idle waits until a controller knows all there is, and has nothing to do.
func (w *World) Idle(controller *harness.Instance) {
	w.T.Helper()
	controller.CatchUp()
	w.Rest(controller)
}

// Rest waits until a controller has nothing to do with what it knows.
func (w *World) Rest(controller *harness.Instance) {
	w.T.Helper()
	quiet := 0
	harness.Eventually(w.T, Soon, "rest", func(context.Context) error {
		if s := controller.Work(); s.Depth > 0 || s.Busy > 0 {
			quiet = 0
			return fmt.Errorf("%+v", s)
		}
		if quiet++; quiet < 10 {
			return fmt.Errorf("at rest %d times", quiet)
		}
		return nil
	})
}

// Retry a write that conflicts.
func (w *World) Retry(write func() error) {
	w.T.Helper()
	w.must(retry.RetryOnConflict(retry.DefaultBackoff, write))
}

func (w *World) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Gone tells whether a read met NotFound.
func Gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("it exists")
}
