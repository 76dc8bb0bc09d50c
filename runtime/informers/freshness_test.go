package informers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

var configMapResource = configMaps.GroupResource()

func create(t *testing.T, client kubernetes.Interface, namespace, name string) (resourceVersion string) {
	t.Helper()
	created, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(namespace, name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created.ResourceVersion
}

func has(t *testing.T, informer *informers.Informer, key string) bool {
	t.Helper()
	_, ok, err := informer.Indexer().GetByKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// within runs f, which must return nil in time, and in less than limit as a
// rule: a machine that is busy is no failure, the wrong mechanism is.
func within(t *testing.T, limit time.Duration, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	if err := f(ctx); err != nil {
		t.Fatalf("%s: %v after %s", what, err, time.Since(began))
	}
	t.Logf("%s: %s", what, time.Since(began))
}

func TestWaitForSyncReachesMarks(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	client, namespace := adminClient(t, cp), cp.Namespace(t)
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("controller")
	defer lease.Release()
	informer := mustLease(t, lease, configMaps)
	if lease.Reached(configMapResource, "1") {
		t.Error("an empty store has reached a version")
	}
	if !lease.Reached(secrets.GroupResource(), "1") || !lease.Reached(configMapResource, "") {
		t.Error("what is not leased or not set has not been reached")
	}
	mustSync(t, lease)
	if !lease.Reached(configMapResource, "not comparable") {
		t.Error("what is not comparable has not been reached")
	}

	release := counted.hold()
	defer release()
	mark := create(t, client, namespace, "a")
	if lease.Reached(configMapResource, mark) {
		t.Error("reached while the watch is held back")
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("enough waited"))
	defer cancel()
	err := lease.WaitForSync(ctx, map[schema.GroupResource]string{configMapResource: mark})
	if err == nil || err.Error() != "wait for a write to show in configmaps.v1: enough waited" {
		t.Errorf("error %v, want that of the context", err)
	}
	release()
	within(t, longTime, "mark", func(ctx context.Context) error {
		return lease.WaitForSync(ctx, map[schema.GroupResource]string{configMapResource: mark, secrets.GroupResource(): mark})
	})
	if !has(t, informer, namespace+"/a") || !lease.Reached(configMapResource, mark) {
		t.Error("synced without the write")
	}
}

// A mark that no event of the resource has is reached all the same.
func TestWaitForSyncReachesMarkWithoutEvent(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	client, namespace := adminClient(t, cp), cp.Namespace(t)
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("controller")
	defer lease.Release()
	mustLease(t, lease, quiet)
	mustSync(t, lease)
	foreign := create(t, client, namespace, "a")
	within(t, longTime, "foreign mark", func(ctx context.Context) error {
		return lease.WaitForSync(ctx, map[schema.GroupResource]string{quiet.GroupResource(): foreign})
	})
}

// quiet is a resource in which nothing happens during the tests.
var quiet = schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}

func TestCatchUpOfQuietResourceIsImmediate(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	client, namespace := adminClient(t, cp), cp.Namespace(t)
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("controller")
	defer lease.Release()
	mustLease(t, lease, quiet)
	if _, err := lease.MetadataInformer(quiet); err != nil {
		t.Fatal(err)
	}
	mustSync(t, lease)
	const times = 5
	immediate := 0
	for n := range times {
		since := time.Now()
		newest := create(t, client, namespace, fmt.Sprint("a-", n))
		_, watchesBefore, _ := counted.counts(quiet.Resource)
		within(t, longTime, "quiet", func(ctx context.Context) error { return lease.CatchUp(ctx, since) })
		if !lease.Reached(quiet.GroupResource(), newest) {
			t.Error("caught up, but older than a write before")
		}
		// A second user with the same since asks for nothing more.
		listsBefore, _, _ := counted.counts(quiet.Resource)
		other := pool.Lease("other")
		mustLease(t, other, quiet)
		within(t, longTime, "second user", func(ctx context.Context) error { return other.CatchUp(ctx, since) })
		other.Release()
		lists, watches, _ := counted.counts(quiet.Resource)
		if lists != listsBefore {
			t.Errorf("%d lists, want %d", lists, listsBefore)
		}
		if watches == watchesBefore {
			immediate++
		}
	}
	// A machine that stands still for a moment lets a watch be made anew.
	if immediate == 0 {
		t.Errorf("none of %d times was it enough to compare the objects", times)
	}
}

// The standby's watch is behind, and what it has not seen yet cancels itself
// out: its store looks as the server does. It must not go back to the state
// between afterwards.
func TestCatchUpLeavesOutWhatIsOver(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	namespace := cp.Namespace(t)
	templates := adminClient(t, cp).CoreV1().PodTemplates(namespace)
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("standby")
	defer lease.Release()
	informer := mustLease(t, lease, podTemplates)
	events := record(t, informer)
	if _, err := templates.Create(t.Context(), podTemplate("stays"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustSync(t, lease)
	eventually(t, "stored", func() bool { return has(t, informer, namespace+"/stays") })

	release := counted.hold()
	defer release()
	if _, err := templates.Create(t.Context(), podTemplate("comes-and-goes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := templates.Delete(t.Context(), "comes-and-goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, longTime, "cancelled out", func(ctx context.Context) error { return lease.CatchUp(ctx, time.Now()) })
	release()
	if _, err := templates.Create(t.Context(), podTemplate("afterwards"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "told", func() bool { return slices.Contains(events(), "add "+namespace+"/afterwards") })
	want := []string{"add " + namespace + "/stays", "add " + namespace + "/afterwards"}
	if got := events(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestCatchUpWaitsForHeldBackWatch(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	namespace := cp.Namespace(t)
	revisions := adminClient(t, cp).AppsV1().ControllerRevisions(namespace)
	data := runtime.RawExtension{Raw: []byte(`{}`)}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: data, Revision: 1}
	if _, err := revisions.Create(t.Context(), revision, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("standby")
	defer lease.Release()
	informer := mustLease(t, lease, controllerRevisions)
	mustSync(t, lease)

	steps := []struct {
		name  string
		write func() error
		seen  func() bool
	}{
		{"update", func() error {
			revision.Revision = 2
			_, err := revisions.Update(t.Context(), revision, metav1.UpdateOptions{})
			return err
		}, func() bool {
			stored, _, err := informer.Indexer().GetByKey(namespace + "/a")
			return err == nil && stored.(*appsv1.ControllerRevision).Revision == 2
		}},
		{"create", func() error {
			_, err := revisions.Create(t.Context(), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Data: data}, metav1.CreateOptions{})
			return err
		}, func() bool { return has(t, informer, namespace+"/b") }},
		{"delete", func() error {
			return revisions.Delete(t.Context(), "a", metav1.DeleteOptions{})
		}, func() bool { return !has(t, informer, namespace+"/a") }},
	}
	for _, step := range steps {
		release := counted.hold()
		if err := step.write(); err != nil {
			t.Fatal(err)
		}
		since := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if err := lease.CatchUp(ctx, since); err == nil || step.seen() {
			t.Errorf("%s: caught up although the watch is held back (%v)", step.name, err)
		}
		cancel()
		release()
		within(t, longTime, step.name, func(ctx context.Context) error { return lease.CatchUp(ctx, since) })
		if !step.seen() {
			t.Errorf("%s: caught up without it", step.name)
		}
	}
}

func TestCatchUpRenewsWatchThatIsStuck(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	namespace := cp.Namespace(t)
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("standby")
	defer lease.Release()
	informer := mustLease(t, lease, roles)
	mustSync(t, lease)
	counted.jam()
	if _, err := adminClient(t, cp).RbacV1().Roles(namespace).Create(t.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, longTime, "stuck", func(ctx context.Context) error { return lease.CatchUp(ctx, time.Now()) })
	if !has(t, informer, namespace+"/a") {
		t.Error("caught up without the write")
	}
}

// Too many objects to compare, and none of them changes: a bookmark tells.
func TestCatchUpOfLargeQuietResource(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	client, namespace := adminClient(t, cp), cp.Namespace(t)
	var group errgroup.Group
	group.SetLimit(8)
	const objects = 600
	for n := range objects {
		group.Go(func() error {
			_, err := client.CoreV1().LimitRanges(namespace).Create(t.Context(),
				&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("a-", n)}}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("standby")
	defer lease.Release()
	mustLease(t, lease, limitRanges)
	mustSync(t, lease)
	replays := record(t, mustLease(t, lease, limitRanges))
	mustSync(t, lease)
	reads := 0
	renewed := func() bool { _, watches, _ := counted.counts(limitRanges.Resource); return watches > 1 }
	// A regular bookmark may come just in time, as it does soon after the first list.
	for ; reads < 5 && !renewed(); reads++ {
		newest := create(t, client, namespace, fmt.Sprint("newest-", reads))
		within(t, longTime, "large", func(ctx context.Context) error { return lease.CatchUp(ctx, time.Now()) })
		if !lease.Reached(limitRanges.GroupResource(), newest) {
			t.Error("caught up, but older than a write before")
		}
	}
	if !renewed() {
		t.Error("no watch was renewed")
	}
	if got := len(replays()); got != objects {
		t.Errorf("%d events, want those of the first list only: %d", got, objects)
	}
	if lists, _, _ := counted.counts(limitRanges.Resource); lists != reads {
		t.Errorf("%d lists, want %d reads of the newest version", lists, reads)
	}
	// After the short watch an ordinary one goes on.
	create := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "last"}}
	eventually(t, "the short watch has ended", func() bool {
		_, watches, open := counted.counts(limitRanges.Resource)
		return watches >= 3 && open == 1
	})
	if _, err := client.CoreV1().LimitRanges(namespace).Create(t.Context(), create, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store follows", func() bool { return len(replays()) == objects+1 })
}

func TestCatchUpEndsWithItsLease(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	namespace := cp.Namespace(t)
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("standby")
	mustLease(t, lease, configMaps)
	mustSync(t, lease)
	release := counted.hold()
	defer release()
	mark := create(t, adminClient(t, cp), namespace, "a")
	results := make(chan error)
	go func() { results <- lease.CatchUp(t.Context(), time.Now()) }()
	go func() {
		results <- lease.WaitForSync(t.Context(), map[schema.GroupResource]string{configMapResource: mark})
	}()
	lease.Release()
	for range 2 {
		if err := <-results; err == nil {
			t.Error("no error after the release")
		}
	}
}

var (
	podTemplates        = schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}
	limitRanges         = schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}
	controllerRevisions = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}
	roles               = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
)

func podTemplate(name string) *corev1.PodTemplate {
	return &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "d"}}},
		},
	}
}

// record the additions and deletions that a handler of informer sees.
func record(t *testing.T, informer *informers.Informer) (events func() []string) {
	t.Helper()
	var mu sync.Mutex
	var recorded []string
	on := func(verb string) func(obj any) {
		return func(obj any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			recorded = append(recorded, verb+" "+key)
		}
	}
	if err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: on("add"), DeleteFunc: on("delete")}); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(recorded)
	}
}
