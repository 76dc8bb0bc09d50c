package informers_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestOneWatchPerResourceForAllUsers(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{Linger: -1})

	first := pool.Lease("first")
	informer := mustLease(t, first, configMaps)
	if again := mustLease(t, first, configMaps); again != informer {
		t.Error("the same call gives another informer")
	}
	if lists, watches, _ := counted.counts("configmaps"); lists+watches != 0 {
		t.Errorf("%d lists and %d watches before the start", lists, watches)
	}
	mustSync(t, first)
	second := pool.Lease("second")
	mustLease(t, second, configMaps)
	mustSync(t, second)
	if lists, watches, open := counted.counts("configmaps"); lists != 0 || watches != 1 || open != 1 {
		t.Errorf("two users: %d lists, %d watches, %d open; want one watch that streams the state", lists, watches, open)
	}
	if got := pool.Status(); len(got) != 1 || !slices.Equal(got[0].Users, []string{"first", "second"}) ||
		got[0].Resource != "configmaps.v1" || !got[0].Synced || got[0].Watches != 1 || got[0].ResourceVersion == "" {
		t.Errorf("status %+v", got)
	}

	first.Release()
	if _, _, open := counted.counts("configmaps"); open != 1 {
		t.Errorf("%d open watches while one user is left, want 1", open)
	}
	namespace := cp.Namespace(t)
	stored := mustLease(t, second, configMaps).Indexer()
	if _, err := adminClient(t, cp).CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(namespace, "a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store still follows", func() bool {
		_, ok, err := stored.GetByKey(namespace + "/a")
		return ok && err == nil
	})
	second.Release()
	second.Release()
	eventually(t, "the watch ends with the last user", func() bool {
		_, _, open := counted.counts("configmaps")
		return open == 0
	})
	if got := pool.Status(); len(got) != 0 {
		t.Errorf("status %+v after the last user", got)
	}
	if _, err := second.Informer(configMaps); err == nil {
		t.Error("a released lease lends")
	}
}

func TestRestartWithinLingerMakesNoRequest(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	create(t, adminClient(t, cp), cp.Namespace(t), "a")
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	for range 5 {
		lease := pool.Lease("controller")
		var replayed atomic.Int64
		err := mustLease(t, lease, configMaps).AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, isInInitialList bool) {
				if isInInitialList {
					replayed.Add(1)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		mustSync(t, lease)
		if replayed.Load() == 0 {
			t.Error("no initial replay of the config map")
		}
		lease.Release()
		if got := pool.Status(); len(got) != 1 || len(got[0].Users) != 0 {
			t.Errorf("status %+v, want an informer that lingers", got)
		}
	}
	if lists, watches, open := counted.counts("configmaps"); lists != 0 || watches != 1 || open != 1 {
		t.Errorf("five restarts: %d lists, %d watches, %d open; want one watch", lists, watches, open)
	}
}

func TestLingeringInformerStopsInTheEnd(t *testing.T) {
	t.Parallel()
	pool, counted := newPool(t, controlplane.Shared(t).AdminConfig(), informers.Options{Linger: 50 * time.Millisecond})
	for range 2 {
		lease := pool.Lease("controller")
		mustLease(t, lease, configMaps)
		mustSync(t, lease)
		lease.Release()
		eventually(t, "the informer stops", func() bool {
			_, _, open := counted.counts("configmaps")
			return open == 0 && len(pool.Status()) == 0
		})
	}
	if _, watches, _ := counted.counts("configmaps"); watches != 2 {
		t.Errorf("%d watches, want one per use", watches)
	}
}

func TestUnusedLeaseMakesNoRequest(t *testing.T) {
	t.Parallel()
	pool, counted := newPool(t, controlplane.Shared(t).AdminConfig(), informers.Options{})
	lease := pool.Lease("controller")
	informer := mustLease(t, lease, configMaps)
	if err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
		t.Fatal(err)
	}
	lease.Release()
	if lists, watches, _ := counted.counts("configmaps"); lists+watches != 0 || len(pool.Status()) != 0 {
		t.Errorf("%d lists, %d watches, status %v", lists, watches, pool.Status())
	}
	if err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("a handler was added after the release")
	}
}

func TestNoHandlerRunsAfterRelease(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	client, namespace := adminClient(t, cp), cp.Namespace(t)
	create(t, client, namespace, "stays") // so that every user has an event
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{})

	// Somebody else's events must go on meanwhile.
	bystander := pool.Lease("bystander")
	var seen atomic.Int64
	if err := mustLease(t, bystander, configMaps).AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { seen.Add(1) },
	}); err != nil {
		t.Fatal(err)
	}
	mustSync(t, bystander)

	before := seen.Load()
	stop := make(chan struct{})
	var storm sync.WaitGroup
	var created atomic.Int64
	for worker := range 3 {
		storm.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("storm-%d-%d", worker, n)
				if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(namespace, name), metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				created.Add(1)
				if err := client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		lease := pool.Lease("controller")
		informer := mustLease(t, lease, configMaps)
		// Not atomic: the race detector sees a handler that runs after Release.
		calls := 0
		released := false
		event := func() {
			calls++
			if released {
				t.Error("an event after the release")
			}
		}
		if err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { event() },
			UpdateFunc: func(any, any) { event() },
			DeleteFunc: func(any) { event() },
		}); err != nil {
			t.Fatal(err)
		}
		mustSync(t, lease)
		lease.Release()
		released = true
		if calls == 0 {
			t.Error("no event at all")
		}
	}
	close(stop)
	storm.Wait()
	eventually(t, "the other user has had all events", func() bool { return seen.Load()-before >= created.Load() })
}

func TestReleaseWaitsForHandlerThatRuns(t *testing.T) {
	t.Parallel()
	pool, _ := newPool(t, controlplane.Shared(t).AdminConfig(), informers.Options{})
	lease := pool.Lease("controller")
	entered, leave := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	if err := mustLease(t, lease, configMaps).AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: onceEvent(func() {
			close(entered)
			<-leave
			left.Store(true)
		}),
	}); err != nil {
		t.Fatal(err)
	}
	lease.Start()
	<-entered
	var releases sync.WaitGroup
	for range 3 {
		releases.Go(func() {
			lease.Release()
			if !left.Load() {
				t.Error("Release returned while a handler was running")
			}
		})
	}
	eventually(t, "the release has begun", func() bool { return len(lease.Informers()) == 0 })
	close(leave)
	releases.Wait()
}

func TestHandlerPanicFailsItsLeaseOnly(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	namespace := cp.Namespace(t)
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{})
	bad, good := pool.Lease("bad"), pool.Lease("good")
	var badCalls, goodCalls atomic.Int64
	if err := mustLease(t, bad, configMaps).AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { badCalls.Add(1); panic("boom") },
	}); err != nil {
		t.Fatal(err)
	}
	if err := mustLease(t, good, configMaps).AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if obj.(*corev1.ConfigMap).Namespace == namespace {
				goodCalls.Add(1)
			}
		},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := adminClient(t, cp).CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(namespace, "a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	good.Start()
	<-bad.Failed()
	if err := bad.Err(); err == nil || !strings.Contains(err.Error(), "event handler of configmaps.v1 panicked: boom") {
		t.Errorf("error %v", err)
	}
	if err := bad.WaitForSync(t.Context(), nil); err == nil {
		t.Error("a failed lease syncs")
	}
	eventually(t, "the other lease has its event", func() bool { return goodCalls.Load() == 1 })
	if got := badCalls.Load(); got != 1 {
		t.Errorf("%d calls of the handler that panicked, want 1", got)
	}
	if err := good.Err(); err != nil {
		t.Errorf("the other lease failed: %v", err)
	}
	bad.Release()
	good.Release()
}

func TestIndexPanicFailsItsLeaseOnly(t *testing.T) {
	t.Parallel()
	pool, _ := newPool(t, controlplane.Shared(t).AdminConfig(), informers.Options{})
	lease := pool.Lease("bad")
	informer := mustLease(t, lease, configMaps)
	if err := informer.AddIndexers(cache.Indexers{"bad": func(any) ([]string, error) { panic("boom") }}); err != nil {
		t.Fatal(err)
	}
	lease.Start()
	<-lease.Failed()
	if err := lease.Err(); !strings.Contains(err.Error(), "index bad of configmaps.v1 panicked: boom") {
		t.Errorf("error %v", err)
	}
	lease.Release()
}

func TestIndexersOfTwoUsersAtOnce(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	create(t, adminClient(t, cp), cp.Namespace(t), "shared-by-users")
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{})
	keeper := pool.Lease("keeper")
	mustLease(t, keeper, configMaps)
	mustSync(t, keeper)
	byName := func(obj any) ([]string, error) {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		return []string{accessor.GetName()}, nil
	}
	var users sync.WaitGroup
	for n := range 20 {
		users.Go(func() {
			lease := pool.Lease(fmt.Sprint("user-", n))
			defer lease.Release()
			informer, err := lease.Informer(configMaps)
			if err != nil {
				t.Error(err)
				return
			}
			if err := informer.AddIndexers(cache.Indexers{"name": byName, fmt.Sprint("own-", n): byName}); err != nil {
				t.Error(err)
				return
			}
			found, err := informer.Indexer().ByIndex("name", "shared-by-users")
			if err != nil || len(found) == 0 {
				t.Errorf("index finds %d objects, error %v", len(found), err)
			}
		})
	}
	users.Wait()
}

func TestManagedFieldsAreNotKept(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	client, namespace := adminClient(t, cp), cp.Namespace(t)
	created, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"kept": "yes"}}}, metav1.CreateOptions{})
	if err != nil || len(created.ManagedFields) == 0 {
		t.Fatalf("created with managed fields %v, error %v", created.ManagedFields, err)
	}
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("controller")
	typed := mustLease(t, lease, configMaps)
	metadataOnly, err := lease.MetadataInformer(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	mustSync(t, lease)
	if got, want := lease.Informers(), []string{"configmaps.v1", "configmaps.v1 (metadata)"}; !slices.Equal(got, want) {
		t.Errorf("informers %v, want %v", got, want)
	}
	check := func(informer *informers.Informer, key string) {
		t.Helper()
		obj, ok, err := informer.Indexer().GetByKey(key)
		if err != nil || !ok {
			t.Fatalf("%s is stored: %t, error %v", key, ok, err)
		}
		accessor, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		if accessor.GetManagedFields() != nil || accessor.GetAnnotations()["kept"] != "yes" {
			t.Errorf("%T has managed fields %v, annotations %v", obj, accessor.GetManagedFields(), accessor.GetAnnotations())
		}
	}
	for _, informer := range []*informers.Informer{typed, metadataOnly} {
		check(informer, namespace+"/a")
	}
	// By an event as well as by the initial list.
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"kept": "yes"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, informer := range []*informers.Informer{typed, metadataOnly} {
		eventually(t, "b is stored", func() bool { _, ok, _ := informer.Indexer().GetByKey(namespace + "/b"); return ok })
		check(informer, namespace+"/b")
	}
}

func TestEveryBuiltInResourceHasATypedInformer(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	lists, err := adminClient(t, cp).Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists)
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{Linger: -1})
	lease := pool.Lease("controller")
	defer lease.Release()
	leased := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if gv.Group == "apiregistration.k8s.io" || gv.Group == "apiextensions.k8s.io" {
			if _, err := lease.Informer(gv.WithResource(list.APIResources[0].Name)); err == nil {
				t.Errorf("%s: a typed informer of what client-go has no type for", gv)
			}
			continue
		}
		if strings.HasSuffix(gv.Group, ".example.com") {
			continue // of another test
		}
		for _, resource := range list.APIResources {
			mustLease(t, lease, gv.WithResource(resource.Name))
			leased++
		}
	}
	if leased < 50 {
		t.Errorf("only %d resources are served", leased)
	}
	mustSync(t, lease)
	for _, status := range pool.Status() {
		if status.LastError != "" || status.Lists != 0 {
			t.Errorf("%s: %d lists, last error %q", status.Resource, status.Lists, status.LastError)
		}
	}
}

func TestMonitorsShareWhatIsThere(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	pool, counted := newPool(t, cp.AdminConfig(), informers.Options{})
	typed := pool.Lease("typed")
	mustLease(t, typed, configMaps)
	mustSync(t, typed)

	monitors := pool.Lease("monitors")
	monitor := func(gvr schema.GroupVersionResource) *informers.Informer {
		t.Helper()
		informer, err := monitors.Monitor(gvr)
		if err != nil {
			t.Fatal(err)
		}
		return informer
	}
	shared, own := monitor(configMaps), monitor(corev1.SchemeGroupVersion.WithResource("secrets"))
	// One that is not served keeps nobody waiting.
	missing := monitor(schema.GroupVersionResource{Group: "missing.example.com", Version: "v1", Resource: "missings"})
	mustSync(t, monitors)
	for _, informer := range []*informers.Informer{shared, own} {
		if err := informer.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the error of the resource that is not served", func() bool { return missing.Err() != nil })
	if missing.HasSynced() || own.Err() != nil {
		t.Errorf("synced %v without being served; another one's error: %v", missing.HasSynced(), own.Err())
	}
	if _, watches, _ := counted.counts("configmaps"); watches != 1 {
		t.Errorf("%d watches for one typed informer and a monitor of it", watches)
	}
	// It may make watches anew.
	if err := monitors.CatchUp(t.Context(), time.Now()); err != nil {
		t.Errorf("catch up beside a monitor that cannot list: %v", err)
	}
	got := map[string]informers.Status{}
	for _, status := range pool.Status() {
		got[status.Resource] = status
	}
	if s := got["configmaps.v1"]; s.Metadata || s.Monitored {
		t.Errorf("somebody depends on the typed informer, but its status is %+v", s)
	}
	if s := got["secrets.v1"]; !s.Metadata || !s.Monitored {
		t.Errorf("a monitor's own informer has status %+v", s)
	}

	// With the other users gone, a monitor that starts anew finds the same one.
	typed.Release()
	monitors.Release()
	monitors = pool.Lease("monitors")
	monitor(configMaps)
	mustSync(t, monitors)
	for _, status := range pool.Status() {
		if status.Resource == "configmaps.v1" && status.Metadata {
			t.Errorf("the monitor that started anew has an informer of its own: %+v", status)
		}
	}
	monitors.Release()
}

func TestClosedPoolLendsNothing(t *testing.T) {
	t.Parallel()
	pool, counted := newPool(t, controlplane.Shared(t).AdminConfig(), informers.Options{})
	lease := pool.Lease("controller")
	if err := mustLease(t, lease, configMaps).AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
		t.Fatal(err)
	}
	mustSync(t, lease)
	pool.Close()
	if open := counted.openWatches(); open != 0 {
		t.Errorf("%d open watches", open)
	}
	if _, err := lease.Informer(secrets); err == nil {
		t.Error("a closed pool lends")
	}
	lease.Release()
	pool.Close()
}

// onceEvent calls f for the first event only.
func onceEvent(f func()) func(any) {
	once := sync.OnceFunc(f)
	return func(any) { once() }
}
