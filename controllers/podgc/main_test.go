package podgc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/podgc"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const (
	// soon is ample on a busy machine. How soon something comes is told by the controller's own clock.
	soon = 2 * time.Minute
	// interval between two passes.
	interval  = 20 * time.Second
	finalizer = "example.com/hold"
)

var (
	pods  = v1.SchemeGroupVersion.WithResource("pods")
	nodes = v1.SchemeGroupVersion.WithResource("nodes")
)

// world is a namespace and some nodes with a running controller, whose clock
// the test sets forward.
type world struct {
	*harness.Engine
	t          *testing.T
	clock      *clocktesting.FakeClock
	controller *harness.Instance

	mu sync.Mutex
	// deletions by the controller: when they were, by the controller's clock.
	deletions map[string][]time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cp := controlplane.Shared(t)
	namespace := cp.Namespace(t)
	w := &world{t: t, clock: harness.NewClock(t, time.Now()), deletions: map[string][]time.Time{}}
	w.Engine = harness.New(t, cp, harness.Options{
		Clock: w.clock,
		Scope: apiproxy.Scope{Namespace: namespace, NodeSelector: "world=" + namespace},
	})
	w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "delete" && r.Resource == pods.GroupResource() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.deletions[r.Name] = append(w.deletions[r.Name], w.clock.Now())
		}
	})
	return w
}

// start starts the controller with a threshold, and returns after its first pass.
func start(t *testing.T, threshold int) *world {
	t.Helper()
	w := newWorld(t)
	w.controller = w.Start(podgc.Descriptor(), section(threshold))
	w.passed(time.Time{})
	return w
}

func section(threshold int) *schema.PodGarbageCollectorController {
	section, ok := schema.PodGarbageCollectorControllerSection().New().(*schema.PodGarbageCollectorController)
	if !ok {
		panic("not the section of this controller")
	}
	section.TerminatedPodThreshold = threshold
	return section
}

// state is the controller's summary.
type state struct {
	LastPass     *time.Time           `json:"lastPass"`
	FinishedPods int                  `json:"finishedPods"`
	MissingNodes map[string]time.Time `json:"missingNodes"`
}

func (w *world) state() state {
	w.t.Helper()
	var s state
	if err := json.Unmarshal([]byte(w.controller.Summary()), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// passed waits for a pass that ended later than after, and until the next one is waited for.
func (w *world) passed(after time.Time) time.Time {
	w.t.Helper()
	var last time.Time
	harness.Eventually(w.t, soon, "pass", func(context.Context) error {
		if at := w.state().LastPass; at == nil || !at.After(after) {
			return fmt.Errorf("the last was at %s, want a later one than %s", at, after)
		} else if last = *at; w.controller.Work().Busy > 0 {
			return errors.New("one is under way")
		}
		return nil
	})
	return last
}

// pass lets the controller see everything there is, and make its next pass.
func (w *world) pass() {
	w.t.Helper()
	w.controller.CatchUp()
	w.nextPass()
}

// nextPass lets the controller make its next pass with the caches that it has.
func (w *world) nextPass() {
	w.t.Helper()
	last := w.passed(time.Time{})
	if next := last.Add(interval + time.Second); next.After(w.clock.Now()) {
		w.clock.SetTime(next)
	}
	w.passed(last)
}

// passUntil makes passes until condition returns nil.
func (w *world) passUntil(what string, condition func() error) {
	w.t.Helper()
	for deadline := time.Now().Add(soon); ; {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("no %s after %s: %v", what, soon, err)
		}
		w.pass()
	}
}

// nodeName is unique in the cluster.
func (w *world) nodeName(name string) string { return w.Namespace + "." + name }

// node creates a node that is ready or not.
func (w *world) node(name string, ready v1.ConditionStatus) {
	w.t.Helper()
	node, err := w.Admin.CoreV1().Nodes().Create(w.t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.nodeName(name), Labels: map[string]string{"world": w.Namespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}}
	if _, err := w.Admin.CoreV1().Nodes().UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteNode(name string) {
	w.t.Helper()
	if err := w.Admin.CoreV1().Nodes().Delete(w.t.Context(), w.nodeName(name), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// taint a node with what says that it will not come back.
func (w *world) taint(name string, effect v1.TaintEffect) {
	w.t.Helper()
	body := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"nodeshutdown","effect":%q}]}}`, v1.TaintNodeOutOfService, effect)
	_, err := w.Admin.CoreV1().Nodes().Patch(w.t.Context(), w.nodeName(name), types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// pod creates a pod.
func (w *world) pod(name string, changes ...func(*v1.Pod)) *v1.Pod {
	w.t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}},
	}
	for _, change := range changes {
		change(pod)
	}
	phase := pod.Status
	pod, err := w.Admin.CoreV1().Pods(w.Namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if phase.Phase == "" {
		return pod
	}
	pod.Status.Phase, pod.Status.Reason = phase.Phase, phase.Reason
	if pod, err = w.Admin.CoreV1().Pods(w.Namespace).UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return pod
}

func (w *world) on(node string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.NodeName = w.nodeName(node) }
}

func in(phase v1.PodPhase) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Status.Phase = phase } }

func evicted(pod *v1.Pod) { pod.Status.Phase, pod.Status.Reason = v1.PodFailed, "Evicted" }

func held(pod *v1.Pod) { pod.Finalizers = []string{finalizer} }

func (w *world) release(name string) {
	w.t.Helper()
	_, err := w.Admin.CoreV1().Pods(w.Namespace).Patch(w.t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// deletePod as its owner would.
func (w *world) deletePod(name string, grace int64) {
	w.t.Helper()
	err := w.Admin.CoreV1().Pods(w.Namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil {
		w.t.Fatal(err)
	}
}

// get returns a pod, nil when it is gone.
func (w *world) get(name string) *v1.Pod {
	w.t.Helper()
	pod, err := w.Admin.CoreV1().Pods(w.Namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// gone returns an error while one of the pods exists.
func (w *world) gone(names ...string) func() error {
	return func() error {
		for _, name := range names {
			if w.get(name) != nil {
				return fmt.Errorf("%s is still there", name)
			}
		}
		return nil
	}
}

// untouched fails the test if one of the pods was changed or deleted.
func (w *world) untouched(before ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range before {
		now := w.get(pod.Name)
		if now == nil || now.UID != pod.UID || now.ResourceVersion != pod.ResourceVersion {
			w.t.Errorf("%s was changed: %+v", pod.Name, now)
		}
	}
}

// deletedAt is when the controller deleted a pod for the first time, by its own clock.
func (w *world) deletedAt(name string) time.Time {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.deletions[name]) == 0 {
		w.t.Fatalf("the controller has not deleted %s", name)
	}
	return w.deletions[name][0]
}

// counted returns the value of a counter for a reason in the test's namespace.
func (w *world) counted(counter, reason string) float64 {
	w.t.Helper()
	families, err := w.controller.Metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != counter {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["namespace"] == w.Namespace && labels["reason"] == reason {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

const (
	deletionsTotal = "pod_gc_collector_force_delete_pods_total"
	errorsTotal    = "pod_gc_collector_force_delete_pod_errors_total"
)

// disruption is the condition that orphans get, nil when the pod has none.
func disruption(pod *v1.Pod) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == v1.DisruptionTarget {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// apart creates pods that differ in the second of their creation, in this order.
func (w *world) apart(changes ...func(*v1.Pod)) []*v1.Pod {
	w.t.Helper()
	var made []*v1.Pod
	for i, change := range changes {
		// The names are in the opposite order, so that it is not theirs.
		made = append(made, w.pod(strings.Repeat("z", len(changes)-i), change))
		created := made[i].CreationTimestamp
		harness.Eventually(w.t, soon, "next second", func(context.Context) error {
			if time.Now().Before(created.Add(time.Second)) {
				return errors.New("not yet")
			}
			return nil
		})
	}
	return made
}

// terminating fails the test unless a pod is being deleted at once, and returns it.
func (w *world) terminating(name string) *v1.Pod {
	w.t.Helper()
	pod := w.get(name)
	if pod == nil || pod.DeletionTimestamp == nil || ptr.Deref(pod.DeletionGracePeriodSeconds, -1) != 0 {
		w.t.Fatalf("%s is not held in its deletion: %+v", name, pod)
	}
	return pod
}
