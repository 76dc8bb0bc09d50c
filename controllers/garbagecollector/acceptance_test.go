package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// together are the scenarios that share one garbage collector, which sees the
// whole of a cluster of its own.
var together = map[string]func(w *world){
	"01_ADependentGoesWithItsOwner":                     acceptance01,
	"02_ADependentStaysWithAnotherOwner":                acceptance02,
	"03_OrphanedDependentsStay":                         acceptance03,
	"04_ForegroundWaitsForABlockingDependent":           acceptance04,
	"05_ForegroundDoesNotWaitForOthers":                 acceptance05,
	"06_AWaitingOwnerLosesADependentWithAnotherOwner":   acceptance06,
	"07_ACircleInTheForegroundEnds":                     acceptance07,
	"AnObjectThatOwnsItselfDoesNotBlockItself":          ownOwner,
	"08_AnOwnerThatNeverWas":                            acceptance08,
	"09_AnOwnerOfAnUnknownKind":                         acceptance09,
	"10_BadReferencesToAUIDHarmNobodyElse":              acceptance10Running,
	"10_ThreeClaimsOfOneUIDThatNeverWas":                acceptance10Never,
	"11_AnOwnerInAnotherNamespace":                      acceptance11,
	"12_AClusterScopedDependentOfANamespacedOwner":      acceptance12,
	"17_APodIsDeletedInTheForegroundTwice":              acceptance17,
	"18_ADependentThatChangesAllTheTimeGoesToo":         acceptance18,
	"19_AnOwnerThatIsAddedInTimeSavesTheDependent":      acceptance19,
	"23_TheGraphShowsTheOwner":                          acceptance23,
	"AnOwnerThatIsNotWatchedKeepsItsDependentsItsLife":  ignoredOwner,
	"DuplicateReferencesOfWhichOneIsWrongKeepTheObject": duplicateReferences,
}

// alone are the scenarios that follow on the same cluster, one after the other:
// they change what is served, or restart the garbage collector.
var alone = map[string]func(w *world){
	"10_BadReferencesThatAreThereAtTheStart":    acceptance10Stopped,
	"13_AnOwnerOfAnOlderVersion":                acceptance13,
	"14And15_CustomResourcesComeAndGo":          acceptance14And15,
	"AnAggregatedAPIThatIsDownStopsNothingElse": aggregatedAPIDown,
}

func TestAcceptance(t *testing.T) { //nolint:tparallel // some scenarios follow one another
	t.Parallel()
	shared := newSharedWorld(t, ownControlPlane(t), nil)
	t.Run("together", func(t *testing.T) {
		for name, scenario := range together {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(shared.another(t))
			})
		}
	})
	t.Run("alone", func(t *testing.T) {
		for name, scenario := range alone {
			t.Run(name, func(t *testing.T) { scenario(shared.another(t)) })
		}
	})
}

func acceptance01(w *world) {
	owner := w.configMap("owner")
	w.configMap("child", ownedBy(configMapRef(owner), nil))
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.gone(configMaps, "child")
}

func acceptance02(w *world) {
	owner, other := w.configMap("owner"), w.configMap("other")
	w.configMap("child", ownedBy(configMapRef(owner), nil), ownedBy(configMapRef(other), nil))
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.owners(configMaps, "child", other.UID)
	w.stays(2*time.Second, configMaps, "child")
}

func acceptance03(w *world) {
	owner := w.configMap("owner")
	for n := range 30 {
		w.configMap(fmt.Sprintf("child-%d", n), ownedBy(configMapRef(owner), nil))
	}
	w.delete(configMaps, "owner", metav1.DeletePropagationOrphan)
	w.gone(configMaps, "owner")
	for n := range 30 {
		w.owners(configMaps, fmt.Sprintf("child-%d", n))
	}
	w.stays(2*time.Second, configMaps, "child-0")
}

func acceptance04(w *world) {
	owner := w.configMap("owner")
	w.configMap("child", ownedBy(configMapRef(owner), yes()), finalizer("x/y"))
	w.delete(configMaps, "owner", metav1.DeletePropagationForeground)
	w.terminating("child")
	harness.Throughout(w.t, 3*time.Second, "wait of the owner", func(ctx context.Context) error {
		object, err := w.get(ctx, configMaps, "owner")
		if err != nil || object == nil || !slices.Equal(object.Finalizers, []string{"foregroundDeletion"}) {
			return fmt.Errorf("the owner is %v: %w", object, err)
		}
		return nil
	})
	w.release(configMaps, "child", "x/y")
	w.gone(configMaps, "owner", "child")
}

// terminating waits until a ConfigMap is being deleted.
func (w *world) terminating(name string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "deletion of "+name, func(ctx context.Context) error {
		object, err := w.get(ctx, configMaps, name)
		if err != nil || object == nil {
			return fmt.Errorf("it is gone: %w", err)
		}
		if object.DeletionTimestamp == nil {
			return errors.New("it is not being deleted")
		}
		return nil
	})
}

func acceptance05(w *world) {
	owner := w.configMap("owner")
	no := false
	w.configMap("false", ownedBy(configMapRef(owner), &no), finalizer("x/y"))
	w.configMap("unset", ownedBy(configMapRef(owner), nil), finalizer("x/y"))
	w.delete(configMaps, "owner", metav1.DeletePropagationForeground)
	w.gone(configMaps, "owner")
	w.terminating("false")
	w.terminating("unset")
}

func acceptance06(w *world) {
	a, b := w.configMap("a"), w.configMap("b")
	w.configMap("child", ownedBy(configMapRef(a), yes()), ownedBy(configMapRef(b), nil))
	w.delete(configMaps, "a", metav1.DeletePropagationForeground)
	w.gone(configMaps, "a")
	w.owners(configMaps, "child", b.UID)
}

func acceptance07(w *world) {
	a := w.configMap("a")
	b := w.configMap("b", ownedBy(configMapRef(a), yes()))
	c := w.configMap("c", ownedBy(configMapRef(b), yes()))
	ref := configMapRef(c)
	ref.BlockOwnerDeletion = yes()
	a.OwnerReferences = []metav1.OwnerReference{ref}
	if _, err := w.engine.Admin.CoreV1().ConfigMaps(w.namespace).Update(w.t.Context(), a, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.delete(configMaps, "a", metav1.DeletePropagationForeground)
	w.gone(configMaps, "a", "b", "c")
}

func ownOwner(w *world) {
	self := w.configMap("self")
	ref := configMapRef(self)
	ref.BlockOwnerDeletion = yes()
	self.OwnerReferences = []metav1.OwnerReference{ref}
	if _, err := w.engine.Admin.CoreV1().ConfigMaps(w.namespace).Update(w.t.Context(), self, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.delete(configMaps, "self", metav1.DeletePropagationForeground)
	w.gone(configMaps, "self")
}

func acceptance08(w *world) {
	w.configMap("child", ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "never-was"}, nil))
	w.gone(configMaps, "child")
}

func acceptance09(w *world) {
	unknown := metav1.OwnerReference{APIVersion: "unknown.group/v1", Kind: "UnknownType", Name: "x", UID: "unknown-type"}
	w.configMap("unknown", ownedBy(unknown, nil))
	w.configMap("missing", ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolume", Name: "missing", UID: "missing-pv"}, nil))
	w.gone(configMaps, "missing")
	w.stays(3*time.Second, configMaps, "unknown")
}

func acceptance10Running(w *world) { w.badReferences(w.another(w.t), func() {}) }

func acceptance10Stopped(w *world) {
	w.instance.Stop()
	w.badReferences(w.another(w.t), w.instance.Start)
}

// badReferences are made to a parent, then collect runs the garbage collector.
func (w *world) badReferences(other *world, collect func()) {
	parent := w.configMap("parent")
	for n := range 10 {
		w.secret(fmt.Sprintf("good-%d", n), ownedBy(configMapRef(parent), nil))
	}
	other.secret("bad", ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "invalid", UID: parent.UID}, nil))
	for n := range 2 { // and good ones after the bad one
		w.secret(fmt.Sprintf("late-%d", n), ownedBy(configMapRef(parent), nil))
	}
	collect()
	other.gone(secrets, "bad")
	w.stays(3*time.Second, configMaps, "parent")
	for n := range 10 {
		w.stays(0, secrets, fmt.Sprintf("good-%d", n))
	}
	w.stays(0, secrets, "late-0")
	w.stays(0, secrets, "late-1")
}

func acceptance10Never(w *world) {
	uid := types.UID("never-" + w.namespace)
	var others []*world
	for i, kind := range []string{"ConfigMap", "Secret", "Pod"} {
		other := w.another(w.t)
		others = append(others, other)
		other.configMap("child", ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: fmt.Sprint("never-", i), UID: uid}, nil))
	}
	for _, other := range others {
		other.gone(configMaps, "child")
	}
}

func acceptance11(w *world) {
	other := w.another(w.t)
	owner := other.configMap("owner")
	w.instance.CatchUp() // or the child may go as one whose owner does not exist
	secret := w.secret("child", ownedBy(configMapRef(owner), nil))
	w.gone(secrets, "child")
	want := fmt.Sprintf("ownerRef [v1/ConfigMap, namespace: %s, name: owner, uid: %s] does not exist in namespace %q",
		w.namespace, owner.UID, w.namespace)
	harness.Eventually(w.t, soon, "event", func(ctx context.Context) error {
		list, err := w.engine.Admin.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.UID == secret.UID && e.Reason == "OwnerRefInvalidNamespace" && e.Type == corev1.EventTypeWarning &&
				e.Message == want && e.Source.Component == "garbage-collector-controller" {
				return nil
			}
		}
		return fmt.Errorf("events %v", list.Items)
	})
	other.stays(time.Second, configMaps, "owner")
}

func acceptance12(w *world) {
	owner := w.configMap("owner")
	name := "pv-" + w.namespace
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{configMapRef(owner)}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
		},
	}
	if _, err := w.engine.Admin.CoreV1().PersistentVolumes().Create(w.t.Context(), pv, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	harness.Throughout(w.t, 3*time.Second, "life of the volume", func(ctx context.Context) error {
		got, err := w.engine.Admin.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && got.DeletionTimestamp != nil {
			return errors.New("it is being deleted")
		}
		return err
	})
}

func acceptance17(w *world) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Finalizers: []string{"x/y"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := w.engine.Admin.CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	for range 2 {
		w.delete(pods, "pod", metav1.DeletePropagationForeground)
		harness.Eventually(w.t, soon, "the other finalizer alone", func(ctx context.Context) error {
			got, err := w.get(ctx, pods, "pod")
			if err != nil || got == nil || !slices.Equal(got.Finalizers, []string{"x/y"}) {
				return fmt.Errorf("pod %v: %w", got, err)
			}
			return nil
		})
	}
	w.release(pods, "pod", "x/y")
	w.gone(pods, "pod")
}

func acceptance18(w *world) {
	owner := w.configMap("owner")
	w.configMap("child", ownedBy(configMapRef(owner), nil))
	var changes atomic.Int64
	stop := w.engine.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb != "delete" || r.Namespace != w.namespace || r.Name != "child" {
			return
		}
		patch := fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, changes.Add(1))
		_, err := w.metadata.Resource(configMaps).Namespace(w.namespace).Patch(w.t.Context(), "child", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			w.t.Errorf("change the child: %v", err)
		}
	})
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.gone(configMaps, "child")
	stop()
}

func acceptance19(w *world) {
	living := w.configMap("living")
	// Of the first ten, the deletion is on its way until the owner has been added.
	var added sync.Map
	stop := w.engine.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb != "delete" || r.Namespace != w.namespace {
			return
		}
		if done, ok := added.Load(r.Name); ok {
			select {
			case <-done.(chan struct{}): //nolint:forcetypeassert // nothing else is stored
			case <-w.t.Context().Done():
			}
		}
	})
	defer stop()
	var saved []string
	for n := range 100 {
		owner := w.configMap(fmt.Sprintf("owner-%d", n))
		child := fmt.Sprintf("child-%d", n)
		done := make(chan struct{})
		if n < 10 {
			added.Store(child, done)
		}
		w.configMap(child, ownedBy(configMapRef(owner), nil))
		w.delete(configMaps, owner.Name, metav1.DeletePropagationBackground)
		patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"living","uid":%q}]}}`, living.UID)
		_, err := w.metadata.Resource(configMaps).Namespace(w.namespace).Patch(
			w.t.Context(), child, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		close(done)
		switch {
		case err == nil:
			saved = append(saved, child)
		case n < 10:
			w.t.Errorf("add an owner to %s: %v", child, err)
		}
	}
	w.t.Logf("%d of 100 dependents were saved", len(saved))
	harness.Throughout(w.t, 3*time.Second, "life of the saved", func(ctx context.Context) error {
		list, err := w.metadata.Resource(configMaps).Namespace(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		alive := map[string]bool{}
		for i := range list.Items {
			alive[list.Items[i].Name] = list.Items[i].DeletionTimestamp == nil
		}
		for _, child := range saved {
			if !alive[child] {
				return fmt.Errorf("%s is gone", child)
			}
		}
		return nil
	})
}

func acceptance23(w *world) {
	owner := w.configMap("owner")
	child := w.configMap("child", ownedBy(configMapRef(owner), nil))
	w.configMap("stranger", ownedBy(configMapRef(w.configMap("strange")), nil))
	harness.Eventually(w.t, soon, "edge", func(context.Context) error {
		recorder := w.serve("/graph?uid=" + string(child.UID))
		body := recorder.Body.String()
		want := fmt.Sprintf("%q -> %q;", child.UID, owner.UID)
		switch {
		case recorder.Code != http.StatusOK || recorder.Header().Get("Content-Type") != "text/vnd.graphviz":
			return fmt.Errorf("answer %d %v", recorder.Code, recorder.Header())
		case !strings.HasPrefix(body, "strict digraph full {") || strings.Count(body, want) != 1 || strings.Contains(body, "stranger"):
			return fmt.Errorf("graph %s", body)
		}
		return nil
	})
	if code := w.serve("/other").Code; code != http.StatusNotFound {
		w.t.Errorf("another path is answered with %d", code)
	}
	harness.Eventually(w.t, soon, "summary", func(context.Context) error {
		if s := w.summary(); s.Nodes < 4 || s.Edges < 2 || s.Monitors < 30 || !s.Ready {
			return fmt.Errorf("summary %+v", s)
		}
		return nil
	})
}

func (w *world) serve(path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	w.instance.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, http.NoBody))
	return recorder
}

func ignoredOwner(w *world) {
	events := apischema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	event, err := w.engine.Admin.EventsV1().Events(w.namespace).Create(w.t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "event"}, EventTime: metav1.NowMicro(), ReportingController: "x.example.com/y",
		ReportingInstance: "z", Action: "Test", Reason: "Test", Type: "Normal", Regarding: corev1.ObjectReference{Namespace: w.namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.configMap("child", ownedBy(metav1.OwnerReference{APIVersion: "events.k8s.io/v1", Kind: "Event", Name: "event", UID: event.UID}, nil))
	w.stays(2*time.Second, configMaps, "child")
	w.delete(events, "event", metav1.DeletePropagationBackground)
	w.gone(configMaps, "child")
}

func duplicateReferences(w *world) {
	owner, dead := w.configMap("owner"), w.configMap("dead")
	wrong := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "wrong", UID: owner.UID}
	w.configMap("child", ownedBy(wrong, nil), ownedBy(configMapRef(owner), nil), ownedBy(configMapRef(dead), nil))
	w.delete(configMaps, "dead", metav1.DeletePropagationBackground)
	harness.Eventually(w.t, soon, "loss of the dead owner alone", func(ctx context.Context) error {
		object, err := w.get(ctx, configMaps, "child")
		if err != nil || object == nil {
			w.t.Fatalf("child %v: %v", object, err)
		}
		for _, ref := range object.OwnerReferences {
			if ref.UID == dead.UID {
				return errors.New("it is there")
			}
		}
		return nil
	})
	w.stays(2*time.Second, configMaps, "child")
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.gone(configMaps, "child")
}
