package daemonset

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/templatehash"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestFailuresBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFailures(clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.run(ctx) }()
		ds := template()
		if wait := f.heldBack(ds, "a"); wait != 0 {
			t.Errorf("the first failure waits %s", wait)
		}
		wait := time.Second
		for range 14 {
			f.deleted(ds, "a")
			time.Sleep(wait - time.Millisecond)
			if got := f.heldBack(ds, "a"); got != wait {
				t.Errorf("waits %s, want %s", got, wait)
			}
			time.Sleep(time.Millisecond)
			if got := f.heldBack(ds, "a"); got != 0 {
				t.Errorf("waits %s after %s", got, wait)
			}
			wait = min(2*wait, 15*time.Minute)
		}
		f.deleted(ds, "a")
		other := ds.DeepCopy()
		other.Generation++
		if f.heldBack(ds, "a") == 0 || f.heldBack(ds, "b") != 0 || f.heldBack(other, "a") != 0 {
			t.Error("another node, or another generation, does not begin anew")
		}
		time.Sleep(31 * time.Minute)
		if f.deleted(ds, "a"); f.heldBack(ds, "a") != time.Second {
			t.Errorf("after a long time it waits %s", f.heldBack(ds, "a"))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// stores makes a controller of stores alone, whose queues note their keys.
func stores(t *testing.T) (c *daemonSetController, reconciled func() []string) {
	t.Helper()
	store := func(indexers ...cache.Indexers) cache.Indexer {
		made := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		for _, indexer := range indexers {
			if err := made.AddIndexers(indexer); err != nil {
				t.Fatal(err)
			}
		}
		return made
	}
	recorder := record.NewFakeRecorder(100)
	client := fake.NewClientset()
	c = &daemonSetController{
		client: client, control: podcontrol.Control{Client: client, Events: recorder}, events: recorder, logger: discard,
		clock: clock.RealClock{}, failures: newFailures(clock.RealClock{}),
		unsure: unsettled.New(nil, clock.RealClock{}), doomed: podcontrol.NewDoomed(), held: holdback.NewBook(),
		daemonSets: store(ownerindex.Selectors(selectorOf)), revisions: store(ownerindex.Controllers()),
		pods: store(ownerindex.Controllers(), ownerindex.Nodes()), nodes: store(), changed: newChangedNodes(),
	}
	group := work.NewGroup(work.GroupOptions{Logger: discard})
	keys := make(chan string, 100)
	c.queue = work.NewQueue(group, work.Options[work.ObjectName]{Name: "d", Reconcile: func(_ context.Context, key work.ObjectName) (work.Result, error) {
		keys <- key.Name
		return work.Result{}, nil
	}})
	c.nodeQueue = work.NewQueue(group, work.Options[string]{Name: "n", Reconcile: func(ctx context.Context, key string) (work.Result, error) {
		result, err := c.reconcileNode(ctx, key)
		keys <- "node " + key
		return result, err
	}})
	group.Start(t.Context(), 1)
	t.Cleanup(func() {
		if err := group.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c, func() []string {
		synctest.Wait()
		var got []string
		for len(keys) > 0 {
			got = append(got, <-keys)
		}
		slices.Sort(got)
		return got
	}
}

// A change of a node reaches those DaemonSets for which it matters, and
// heartbeats reach none.
func TestNodeEventsReachOnlyWhomTheyConcern(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, reconciled := stores(t)
		for i, change := range []func(*v1.PodSpec){
			func(*v1.PodSpec) {},
			func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"color": "blue"} },
			func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"color": "red"} },
			func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} },
			func(s *v1.PodSpec) { s.NodeName = "other" },
		} {
			ds := template(change)
			ds.Name = []string{"all", "blue", "red", "tolerant", "elsewhere"}[i]
			ds.UID = types.UID(ds.Name)
			if err := c.daemonSets.Add(ds); err != nil {
				t.Fatal(err)
			}
		}
		handler := c.nodeHandler()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		expect := func(what string, want ...string) {
			t.Helper()
			if got := reconciled(); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		node := testNode("a")
		update := func(change func(*v1.Node)) {
			changed := node.DeepCopy()
			change(changed)
			must(c.nodes.Update(changed))
			handler.OnUpdate(node, changed)
			node = changed
		}
		must(c.nodes.Add(node))
		handler.OnAdd(node, true)
		expect("initial list")
		handler.OnAdd(node, false)
		expect("new node", "all", "blue", "node a", "tolerant")

		update(func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}}
			n.Spec.Unschedulable = true
		})
		expect("heartbeat")
		update(func(n *v1.Node) { n.Labels["zone"] = "z" })
		expect("label that nobody asks for", "node a")
		update(func(n *v1.Node) { n.Labels["color"] = "red" })
		expect("label", "blue", "node a", "red")
		update(tainted("x", "", v1.TaintEffectNoSchedule))
		expect("taint", "all", "node a", "red")
		update(tainted(v1.TaintNodeUnreachable, "", v1.TaintEffectNoExecute))
		expect("taint that all tolerate", "node a")
		update(func(n *v1.Node) { n.Spec.Taints = nil })
		expect("no taint", "all", "node a", "red")

		// A pod on the node that its DaemonSet does not want there.
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "blue", UID: "blue"}}, controllerKind),
			},
		}, Spec: v1.PodSpec{NodeName: "a"}}
		must(c.pods.Add(pod))
		must(c.nodes.Delete(node))
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "a", Obj: node})
		expect("lost node", "all", "blue", "node a", "red", "tolerant")
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "a"})
		handler.OnAdd(pod, false)
		expect("nonsense")
	})
}

// Several changes of a node that are looked at at once are compared with the
// state before the first.
func TestChangedNodesKeepTheFirstState(t *testing.T) {
	t.Parallel()
	nodes := newChangedNodes()
	first, second := testNode("a"), testNode("a")
	nodes.note("a", first)
	nodes.note("a", second)
	nodes.note("b", nil)
	nodes.note("b", second)
	if before, noted := nodes.take("a"); before != first || !noted {
		t.Errorf("a: %v, %t", before, noted)
	}
	if before, noted := nodes.take("b"); before != nil || !noted {
		t.Errorf("b: %v, %t", before, noted)
	}
	if _, noted := nodes.take("a"); noted {
		t.Error("a was noted twice")
	}
}

// DaemonSets that the API server would not store today are left alone, with an
// event where the user can do something about it.
func TestSelectorsThatCannotBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := stores(t)
		for _, test := range []struct {
			name     string
			selector *metav1.LabelSelector
			event    string
		}{
			{"empty", &metav1.LabelSelector{}, "Warning SelectingAll This daemon set is selecting all pods. A non-empty selector is required."},
			{"invalid", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}, ""},
		} {
			ds := template()
			ds.Name, ds.Spec.Selector = test.name, test.selector
			if err := c.daemonSets.Add(ds); err != nil {
				t.Fatal(err)
			}
			result, err := c.reconcile(t.Context(), cache.NewObjectName("ns", test.name))
			if err != nil || result != (work.Result{}) {
				t.Errorf("%s: %v, %v", test.name, result, err)
			}
			recorder := c.events.(*record.FakeRecorder)
			var events []string
			for len(recorder.Events) > 0 {
				events = append(events, <-recorder.Events)
			}
			if got := strings.Join(events, "\n"); got != test.event {
				t.Errorf("%s: events %q", test.name, got)
			}
		}
		if actions := c.client.(*fake.Clientset).Actions(); len(actions) > 0 {
			t.Errorf("requests %v", actions)
		}
		if result, err := c.reconcile(t.Context(), cache.NewObjectName("ns", "gone")); err != nil || result != (work.Result{}) {
			t.Errorf("gone: %v, %v", result, err)
		}
	})
}

// reconciled reconciles ds, with nodes a and b and a pod on a, while creations are refused.
func reconciled(t *testing.T, ds *appsv1.DaemonSet, words string) (work.Result, []clienttesting.Action, error) {
	t.Helper()
	c, _ := stores(t)
	client := c.client.(*fake.Clientset)
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("quota"))
	})
	client.PrependReactor("update", "daemonsets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, action.(clienttesting.UpdateAction).GetObject(), nil
	})
	c.clock = clocktesting.NewFakeClock(planNow)
	c.failures = newFailures(c.clock)
	hash := templatehash.Compute(&ds.Spec.Template, nil)
	pod := described("a", words)[0]
	pod.Namespace = ds.Namespace
	pod.Labels = map[string]string{"app": "agent", hashLabel: hash}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, controllerKind)}
	if pod.Status.Phase == v1.PodFailed {
		c.failures.deleted(ds, "a")
	}
	for store, objects := range map[cache.Indexer][]any{
		c.daemonSets: {ds}, c.nodes: {testNode("a"), testNode("b")}, c.pods: {pod},
	} {
		for _, object := range objects {
			if err := store.Add(object); err != nil {
				t.Fatal(err)
			}
		}
	}
	result, err := c.reconcile(t.Context(), cache.MetaObjectToName(ds))
	return result, client.Actions(), err
}

// What becomes due without an event is not forgotten because pods are refused.
func TestRefusedPodsKeepNothingElseWaiting(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, words string
		want        time.Duration
	}{
		{"a pod becomes available", "new-ready", 10 * time.Second},
		{"a failed pod may go", "new-failed", time.Second},
		{"a deletion may be stuck", "new-going", 5 * time.Second},
		{"nothing becomes due", "new-available", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ds := template()
				ds.Spec.MinReadySeconds = 10
				result, _, err := reconciled(t, ds, test.words)
				if !apierrors.IsForbidden(err) || result.RequeueAfter != test.want {
					t.Errorf("again after %s, want %s; %v", result.RequeueAfter, test.want, err)
				}
			})
		})
	}
}

// Such pods would be released at once, and made again without end.
func TestNoPodIsMadeThatTheSelectorDoesNotMatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ds := template()
		ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
		_, actions, err := reconciled(t, ds, "new-available")
		if err == nil || !strings.Contains(err.Error(), "selector does not match the labels of the template") {
			t.Errorf("error %v", err)
		}
		for _, action := range actions {
			if action.Matches("create", "pods") {
				t.Errorf("request %v", action)
			}
		}
	})
}
