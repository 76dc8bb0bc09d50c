package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// scenario of a garbage collector that sees one namespace.
type scenario struct {
	name string
	run  func(w *world)
}

// inTurn are scenarios of which those of a group share a namespace and its
// garbage collector, one after the other: they restart it, or count what it asks for.
var inTurn = map[string][]scenario{
	"many": {
		{"20_DeletionsWhileItWasStopped", acceptance20},
		{"21_WorkersChangeDuringACascade", acceptance21},
		{"ACascadeTakesOneRequestPerObject", cascade},
	},
	"few": {
		{"ARestartListsNothing", restartListsNothing},
		{"IgnoredResourcesChangeWithoutARestart", ignoredResources},
		{"A404OfAProxyEndsNothing", foreign404},
		{"22_OthersGoOnWhenItIsStopped", acceptance22},
	},
}

func TestAcceptanceInTurn(t *testing.T) {
	t.Parallel()
	for name, scenarios := range inTurn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start()
			w.ready()
			for _, s := range scenarios {
				t.Run(s.name, func(t *testing.T) {
					own := *w
					own.t = t
					s.run(&own)
				})
			}
		})
	}
}

func acceptance20(w *world) {
	background, foreground, orphan := w.configMap("background"), w.configMap("foreground"), w.configMap("orphan")
	for n := range 5 {
		w.configMap(fmt.Sprint("background-", n), ownedBy(configMapRef(background), yes()))
		w.configMap(fmt.Sprint("foreground-", n), ownedBy(configMapRef(foreground), yes()))
		w.configMap(fmt.Sprint("orphan-", n), ownedBy(configMapRef(orphan), yes()))
	}
	w.instance.Stop()
	w.delete(configMaps, "background", metav1.DeletePropagationBackground)
	w.delete(configMaps, "foreground", metav1.DeletePropagationForeground)
	w.delete(configMaps, "orphan", metav1.DeletePropagationOrphan)
	w.stays(time.Second, configMaps, "background-0")
	w.instance.Start()
	w.gone(configMaps, "foreground", "orphan")
	for n := range 5 {
		w.gone(configMaps, fmt.Sprint("background-", n), fmt.Sprint("foreground-", n))
		w.owners(configMaps, fmt.Sprint("orphan-", n))
	}
}

func acceptance21(w *world) {
	resource := corev1.SchemeGroupVersion.WithResource("replicationcontrollers")
	for n := range 50 {
		rc, err := w.engine.Admin.CoreV1().ReplicationControllers(w.namespace).Create(w.t.Context(), &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("rc-", n)},
			Spec:       corev1.ReplicationControllerSpec{Selector: map[string]string{"a": "b"}, Template: ptr.To(podTemplate())},
		}, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for range 3 {
			w.pod(metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: rc.Name, UID: rc.UID})
		}
	}
	for n := range 50 {
		w.delete(resource, fmt.Sprint("rc-", n), metav1.DeletePropagationBackground)
		switch n {
		case 10:
			w.instance.Resize(1)
		case 30:
			w.instance.Resize(5)
		}
	}
	w.noPods()

	// One event of the graph for each change.
	w.configMap("changing")
	before := w.settledEvents()
	for n := range 5 {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n)
		_, err := w.metadata.Resource(configMaps).Namespace(w.namespace).Patch(
			w.t.Context(), "changing", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	harness.Eventually(w.t, soon, "five events", func(context.Context) error {
		if events := w.summary().Events - before; events < 5 {
			return fmt.Errorf("%d events", events)
		}
		return nil
	})
	if events := w.settledEvents() - before; events >= 10 {
		w.t.Errorf("%d events of the graph for 5 changes", events)
	}
}

// settledEvents is the number of the graph's events when it has not grown for a moment.
func (w *world) settledEvents() int64 {
	w.t.Helper()
	w.instance.CatchUp()
	last, since := int64(-1), time.Now()
	harness.Eventually(w.t, soon, "rest", func(context.Context) error {
		if events := w.summary().Events; events != last {
			last, since = events, time.Now()
		}
		if time.Since(since) < 300*time.Millisecond {
			return errors.New("events come in")
		}
		return nil
	})
	return last
}

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func (w *world) pod(owner metav1.OwnerReference) {
	w.t.Helper()
	template := podTemplate()
	owner.BlockOwnerDeletion = yes()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Labels: template.Labels, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       template.Spec,
	}
	if _, err := w.engine.Admin.CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) noPods() {
	w.t.Helper()
	harness.Eventually(w.t, 2*soon, "end of all pods", func(ctx context.Context) error {
		list, err := w.metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(w.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
}

func acceptance22(w *world) {
	sets := w.engine.Start(replicaset.Descriptor(), nil)
	owner := w.configMap("owner")
	w.configMap("child", ownedBy(configMapRef(owner), nil))
	w.instance.Stop()
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	template := podTemplate()
	_, err := w.engine.Admin.AppsV1().ReplicaSets(w.namespace).Create(w.t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	harness.Eventually(w.t, soon, "two pods", func(ctx context.Context) error {
		set, err := w.engine.Admin.AppsV1().ReplicaSets(w.namespace).Get(ctx, "set", metav1.GetOptions{})
		if err == nil && set.Status.Replicas != 2 {
			err = fmt.Errorf("status %+v", set.Status)
		}
		return err
	})
	w.stays(3*time.Second, configMaps, "child")
	sets.Stop()
}

func TestAnOwnerWaitsUntilAllItsDependentsAreKnown(t *testing.T) {
	t.Parallel()
	clock := harness.NewClock(t, time.Now())
	w := newClockWorld(t, clock)
	release := w.engine.Proxy.HoldWatches(secrets.GroupResource())
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground} {
		owner := w.configMap("owner-" + string(policy[0]+32))
		w.secret("child-"+string(policy[0]+32), ownedBy(configMapRef(owner), yes()))
		w.delete(configMaps, owner.Name, policy)
	}
	w.start()
	// Nothing else waits for longer than ten seconds.
	clock.Step(15 * time.Second)
	harness.Eventually(t, soon, "work on what needs no complete graph", func(context.Context) error {
		if s := w.summary(); !s.Ready || s.Complete {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	harness.Throughout(t, 2*time.Second, "wait of the owners", func(ctx context.Context) error {
		for _, name := range []string{"owner-o", "owner-f"} {
			if object, err := w.get(ctx, configMaps, name); err != nil || object == nil {
				return fmt.Errorf("%s is gone: %w", name, err)
			}
		}
		return nil
	})
	release()
	w.gone(configMaps, "owner-o", "owner-f")
	w.gone(secrets, "child-f")
	w.owners(secrets, "child-o")
	w.stays(2*time.Second, secrets, "child-o")
}

// While no watch is there, an owner and what blocks another owner make way for
// objects of the same names, which have nothing to do with them.
func TestReplacedObjectsOwnAndBlockNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.ready()
	w.configMap("child", ownedBy(configMapRef(w.configMap("owner")), nil))
	w.configMap("blocker", ownedBy(configMapRef(w.configMap("blocked")), yes()), finalizer("x/y"))
	w.delete(configMaps, "blocked", metav1.DeletePropagationForeground)
	w.terminating("blocker")

	w.engine.Proxy.Cut()
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.release(configMaps, "blocker", "x/y")
	w.gone(configMaps, "owner", "blocker")
	w.configMap("owner")
	w.configMap("blocker")
	// The watch cannot go on where it was.
	var expired atomic.Bool
	w.engine.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Verb == "watch" && r.Resource == configMaps.GroupResource() && expired.CompareAndSwap(false, true)
	}, http.StatusGone, 0)
	w.engine.Proxy.Mend()

	w.gone(configMaps, "child", "blocked")
	w.stays(time.Second, configMaps, "owner")
	w.stays(time.Second, configMaps, "blocker")
	if !expired.Load() {
		t.Error("no watch has expired")
	}
}

func TestDependentsThatShowUpAfterOrphaningAreReleased(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start()
			w.ready()
			show := w.engine.Proxy.HoldWatches(secrets.GroupResource())
			owner := w.configMap("owner")
			w.secret("child", ownedBy(configMapRef(owner), nil))
			w.delete(configMaps, "owner", metav1.DeletePropagationOrphan)
			w.gone(configMaps, "owner")
			if restart {
				w.instance.Restart()
			}
			show()
			w.owners(secrets, "child")
			w.stays(2*time.Second, secrets, "child")
		})
	}
}

// A 404 that no API server has given proves nothing: what was to be done is tried again.
func foreign404(w *world) {
	owner, orphaning := w.configMap("owner"), w.configMap("orphaning")
	w.configMap("child", ownedBy(configMapRef(owner), nil))
	w.configMap("orphan", ownedBy(configMapRef(orphaning), nil))
	asked := map[string]func(apiproxy.Request) bool{
		"child":  func(r apiproxy.Request) bool { return r.Name == "child" && r.Verb == "delete" },
		"orphan": func(r apiproxy.Request) bool { return r.Name == "orphan" && r.Verb == "patch" },
	}
	mend := w.engine.Proxy.Answer(func(r apiproxy.Request) bool { return asked["child"](r) || asked["orphan"](r) }, http.StatusNotFound, 0)
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.delete(configMaps, "orphaning", metav1.DeletePropagationOrphan)
	for name, match := range asked {
		harness.Eventually(w.t, soon, "second attempt on "+name, func(context.Context) error {
			if n := len(w.engine.Proxy.Requests(match)); n < 2 {
				return fmt.Errorf("%d attempts", n)
			}
			return nil
		})
	}
	if object, err := w.get(w.t.Context(), configMaps, "orphaning"); err != nil || object == nil {
		w.t.Errorf("the owner is gone before its dependent was released: %v", err)
	}
	mend()
	w.gone(configMaps, "child", "orphaning")
	w.owners(configMaps, "orphan")
}

func restartListsNothing(w *world) {
	monitors := w.summary().Monitors
	w.engine.Proxy.Forget()
	for range 3 {
		w.instance.Restart()
		w.ready()
	}
	if s := w.summary(); s.Monitors != monitors {
		w.t.Errorf("%d monitors after restarts, %d before", s.Monitors, monitors)
	}
	requests := w.engine.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "list" || r.Verb == "watch" })
	if len(requests) > 0 {
		w.t.Errorf("restarts sent %d lists and watches: %+v", len(requests), requests[0])
	}
}

func ignoredResources(w *world) {
	before := w.summary().Monitors
	section, ok := schema.GarbageCollectorControllerSection().New().(*schema.GarbageCollectorController)
	if !ok {
		w.t.Fatal("the section has another type")
	}
	section.IgnoredResources = append(section.IgnoredResources, schema.GroupResource{Resource: "secrets"})
	w.instance.ApplyLive(section)
	w.monitors(before - 1)
	// An owner that is not watched any more is looked up.
	owner := w.secret("owner")
	w.configMap("child", ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: owner.UID}, nil))
	w.stays(2*time.Second, configMaps, "child")
	section = schema.GarbageCollectorControllerSection().New().(*schema.GarbageCollectorController) //nolint:forcetypeassert // checked above
	w.instance.ApplyLive(section)
	w.monitors(before)
	w.delete(secrets, "owner", metav1.DeletePropagationBackground)
	w.gone(configMaps, "child")
}

func cascade(w *world) {
	const owners, replicas = 10, 20
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	template := podTemplate()
	for n := range owners {
		name := fmt.Sprint("d-", n)
		selector := &metav1.LabelSelector{MatchLabels: template.Labels}
		d, err := w.engine.Admin.AppsV1().Deployments(w.namespace).Create(w.t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
		}, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		rs, err := w.engine.Admin.AppsV1().ReplicaSets(w.namespace).Create(w.t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: d.UID, BlockOwnerDeletion: yes(),
			}}},
			Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template},
		}, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for range replicas {
			w.pod(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: rs.UID})
		}
	}
	w.settledEvents()
	w.engine.Proxy.Forget()
	began := time.Now()
	for n := range owners {
		w.delete(deployments, fmt.Sprint("d-", n), metav1.DeletePropagationBackground)
	}
	w.noPods()
	requests := w.engine.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Resource != (apischema.GroupResource{}) && r.Verb != "watch" && r.Subresource != "token"
	})
	byVerb := map[string]int{}
	for _, r := range requests {
		byVerb[r.Verb]++
	}
	w.t.Logf("%d requests for %d Deployments with %d pods each in %s: %v", len(requests), owners, replicas, time.Since(began), byVerb)
	// One for each ReplicaSet and pod, and a few that meet a newer version.
	if most := owners * (replicas + 1) * 11 / 10; len(requests) > most {
		w.t.Errorf("%d requests, want at most %d", len(requests), most)
	}
}
