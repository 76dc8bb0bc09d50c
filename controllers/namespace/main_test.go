package namespace_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/namespace"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// soon is ample for what must come on a busy machine.
const soon = 3 * time.Minute

// quick is the grace period of tests that are not about it.
const quick = 200 * time.Millisecond

// scope is the label by which a test has namespaces of its own.
const scope = "namespace-test"

var (
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	definitions = apischema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServices = apischema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// Namespaces that are being deleted take new objects here, as they do for a
// moment from an API server that has not seen their deletion.
func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, controlplane.Options{APIServerArgs: []string{"--disable-admission-plugins=NamespaceLifecycle"}}))
}

// ownControlPlane for a test that disturbs all others.
func ownControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// world is an engine with namespaces of its own.
type world struct {
	*harness.Engine
	t        *testing.T
	label    string
	instance *harness.Instance
	metadata metadata.Interface
	dynamic  dynamic.Interface
	// time of the controller; nil if it has the real one.
	time *clocktesting.FakeClock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, controlplane.Shared(t), harness.Options{})
}

// newClockWorld has a clock that the test moves.
func newClockWorld(t *testing.T) *world {
	t.Helper()
	fake := clocktesting.NewFakeClock(time.Now())
	w := newWorldOn(t, controlplane.Shared(t), harness.Options{Clock: fake})
	w.time = fake
	return w
}

func newWorldOn(t *testing.T, cp *controlplane.ControlPlane, o harness.Options) *world {
	t.Helper()
	label := rand.String(10)
	o.Scope = apiproxy.Scope{NamespaceSelector: scope + "=" + label}
	o.DiscoveryInterval = cmp.Or(o.DiscoveryInterval, time.Second)
	w := &world{Engine: harness.New(t, cp, o), t: t, label: label}
	var err error
	if w.metadata, err = metadata.NewForConfig(cp.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if w.dynamic, err = dynamic.NewForConfig(cp.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	return w
}

// section of the controller with a short grace period.
func section(changes ...func(*schema.NamespaceController)) schema.Section {
	made, ok := schema.NamespaceControllerSection().New().(*schema.NamespaceController)
	if !ok {
		return nil
	}
	made.DeletionGracePeriod.Duration = quick
	for _, change := range changes {
		change(made)
	}
	return made
}

// start the controller with a short grace period.
func (w *world) start(changes ...func(*schema.NamespaceController)) {
	w.t.Helper()
	w.instance = w.Start(namespace.Descriptor(), section(changes...))
}

// startDefault starts the controller with its default configuration.
func (w *world) startDefault() {
	w.t.Helper()
	w.instance = w.Start(namespace.Descriptor(), nil)
}

// namespace creates one whose name begins with a prefix.
func (w *world) namespace(prefix string, changes ...func(*corev1.Namespace)) string {
	w.t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-", Labels: map[string]string{scope: w.label}}}
	for _, change := range changes {
		change(n)
	}
	created, err := w.Admin.CoreV1().Namespaces().Create(w.t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created.Name
}

func (w *world) configMap(ns, name string, finalizers ...string) types.UID {
	w.t.Helper()
	created, err := w.Admin.CoreV1().ConfigMaps(ns).Create(w.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created.UID
}

// pod that runs on a node without a kubelet, if it has one.
func (w *world) pod(ns, name, node string, grace int64, finalizers ...string) {
	w.t.Helper()
	_, err := w.Admin.CoreV1().Pods(ns).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "c", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// delete a namespace, and return the time of its deletion.
func (w *world) delete(ns string) time.Time {
	w.t.Helper()
	if err := w.Admin.CoreV1().Namespaces().Delete(w.t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	n, err := w.get(w.t.Context(), ns)
	if err != nil || n == nil || n.DeletionTimestamp == nil {
		return time.Now() // it is gone already
	}
	return n.DeletionTimestamp.Time
}

// get a namespace; nil when it is gone.
func (w *world) get(ctx context.Context, ns string) (*corev1.Namespace, error) {
	n, err := w.Admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return n, err
}

// eventually waits for what the controller has to do still. Time goes on
// meanwhile: a key waits until the cache has seen what was written for it, and
// what has failed on a busy machine is repeated.
func (w *world) eventually(what string, check func(context.Context) error) {
	w.t.Helper()
	harness.Eventually(w.t, soon, what, func(ctx context.Context) error {
		if w.time != nil {
			w.time.Step(10 * time.Millisecond)
		}
		return check(ctx)
	})
}

// gone waits until namespaces are gone.
func (w *world) gone(names ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprint("end of ", names), func(ctx context.Context) error {
		for _, name := range names {
			n, err := w.get(ctx, name)
			if err != nil {
				return err
			}
			if n != nil {
				return fmt.Errorf("%s is there: %v, %v, %+v", name, n.Finalizers, n.Spec.Finalizers, n.Status)
			}
		}
		return nil
	})
}

// emptied waits until a namespace holds no object of a resource that is not being deleted.
func (w *world) emptied(ns string, gvr apischema.GroupVersionResource) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "deletion of "+gvr.Resource, func(ctx context.Context) error {
		list, err := w.metadata.Resource(gvr).Namespace(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				return fmt.Errorf("%s is there", list.Items[i].Name)
			}
		}
		return nil
	})
}

// lives fails the test unless an object is there and not being deleted.
func (w *world) lives(ctx context.Context, gvr apischema.GroupVersionResource, ns, name string) error {
	object, err := w.metadata.Resource(gvr).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if object.DeletionTimestamp != nil {
		return errors.New("it is being deleted")
	}
	return nil
}

// letGo removes all finalizers of an object.
func (w *world) letGo(gvr apischema.GroupVersionResource, ns, name string) {
	w.t.Helper()
	_, err := w.metadata.Resource(gvr).Namespace(ns).Patch(w.t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// finalize replaces the finalizers in the spec of a namespace.
func (w *world) finalize(ns string, finalizers ...corev1.FinalizerName) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "finalization of "+ns, func(ctx context.Context) error {
		n, err := w.get(ctx, ns)
		if err != nil || n == nil {
			return err
		}
		n.Spec.Finalizers = finalizers
		_, err = w.Admin.CoreV1().Namespaces().Finalize(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// verdict is a condition in short.
type verdict struct {
	status  corev1.ConditionStatus
	reason  string
	message string
}

var (
	discovered = verdict{corev1.ConditionFalse, "ResourcesDiscovered", "All resources successfully discovered"}
	parsed     = verdict{corev1.ConditionFalse, "ParsedGroupVersions", "All legacy kube types successfully parsed"}
	deleted    = verdict{corev1.ConditionFalse, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"}
	removed    = verdict{corev1.ConditionFalse, "ContentRemoved", "All content successfully removed"}
	unheld     = verdict{corev1.ConditionFalse, "ContentHasNoFinalizers", "All content-preserving finalizers finished"}
)

// conditions in their order: discovery, parsing, content, remaining, finalizers.
type conditions [5]verdict

var conditionTypes = [5]corev1.NamespaceConditionType{
	corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceDeletionContentFailure,
	corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining,
}

func conditionsOf(n *corev1.Namespace) (found conditions, complete bool) {
	for i, kind := range conditionTypes {
		at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
		if at < 0 {
			return found, false
		}
		c := n.Status.Conditions[at]
		found[i] = verdict{c.Status, c.Reason, c.Message}
	}
	return found, true
}

// says waits until a namespace has these conditions.
func (w *world) says(ns string, want conditions) {
	w.t.Helper()
	w.saysThat(ns, fmt.Sprintf("conditions %q", want), func(got conditions) bool { return got == want })
}

func (w *world) saysThat(ns, what string, holds func(conditions) bool) {
	w.t.Helper()
	w.eventually(what, func(ctx context.Context) error {
		n, err := w.get(ctx, ns)
		if err != nil || n == nil {
			return fmt.Errorf("namespace is gone: %w", err)
		}
		if got, complete := conditionsOf(n); !complete || !holds(got) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// requests of the controller, not of the engine, that concern a namespace.
func (w *world) requests(ns string, match func(apiproxy.Request) bool) []apiproxy.Request {
	return w.Proxy.Requests(func(r apiproxy.Request) bool {
		return (r.Namespace == ns || r.Resource == namespaces.GroupResource() && r.Name == ns) && (match == nil || match(r))
	})
}

func (w *world) releases(ns string) []apiproxy.Request {
	return w.requests(ns, func(r apiproxy.Request) bool { return r.Subresource == "finalize" })
}

func (w *world) writes(ns string) []apiproxy.Request {
	return w.requests(ns, apiproxy.Request.Write)
}

// reads of a namespace itself, of which every look at it makes one.
func (w *world) reads(ns string) int {
	return len(w.requests(ns, func(r apiproxy.Request) bool { return r.Verb == "get" && r.Name == ns }))
}

// pass waits until there were more than so many reads of a namespace.
func (w *world) pass(ns string, reads int) {
	w.t.Helper()
	w.eventually("another look at "+ns, func(context.Context) error {
		if n := w.reads(ns); n <= reads {
			return fmt.Errorf("%d reads", n)
		}
		return nil
	})
}
