package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// A cache that is behind shows a namespace that is gone, and whose name belongs to another one.
func TestANewNamespaceOfTheSameNameIsNotSwept(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	w.startDefault()
	ns := w.namespace("again")
	w.configMap(ns, "old")
	w.delete(ns)
	w.emptied(ns, configMaps)
	harness.Eventually(t, soon, "end of the early sweep", func(context.Context) error { return w.resting() })

	release := w.Proxy.HoldWatches(namespaces.GroupResource())
	defer release()
	w.finalize(ns)
	w.gone(ns)
	again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{scope: w.label}}}
	if _, err := w.Admin.CoreV1().Namespaces().Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.configMap(ns, "new")
	writes := len(w.writes(ns))
	reads := w.step(ns, 5*time.Second)
	w.pass(ns, reads)
	harness.Throughout(t, time.Second, "life of the new namespace", func(ctx context.Context) error {
		if after := w.writes(ns); len(after) > writes {
			return fmt.Errorf("%v", after[writes:])
		}
		return w.lives(ctx, configMaps, ns, "new")
	})
}

func TestNothingIsReleasedWhileAListFails(t *testing.T) {
	t.Parallel()
	// The second one is no API server's: that of a server that is starting, or of a proxy.
	for _, code := range []int{http.StatusServiceUnavailable, http.StatusNotFound} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start()
			mend := w.Proxy.Answer(func(r apiproxy.Request) bool {
				return r.Resource.Resource == "leases" && r.Verb == "list" && r.Namespace != ""
			}, code, 0)
			ns := w.namespace("failing")
			w.configMap(ns, "c")
			w.delete(ns)
			w.saysThat(ns, "failure", func(c conditions) bool {
				return c[0] == discovered && c[3] == removed && c[2].reason == "ContentDeletionFailed" &&
					strings.HasPrefix(c[2].message, "Failed to delete all resource types, 1 remaining: list leases.coordination.k8s.io: ")
			})
			w.emptied(ns, configMaps)
			if n := w.releases(ns); len(n) > 0 {
				t.Errorf("released: %v", n)
			}
			mend()
			w.gone(ns)
		})
	}
}

// An API server whose cache of a resource cannot be filled asks to come back
// later. That may not keep a worker for minutes, nor the conditions.
func TestAResourceThatAsksToComeBackDelaysNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Without a grace period there is one sweep, which has to wait once.
	w.start(func(s *schema.NamespaceController) { s.Workers, s.DeletionGracePeriod.Duration = 1, 0 })
	mend := w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Resource.Resource == "leases" && r.Verb == "list" && r.Namespace != ""
	}, http.StatusTooManyRequests, 30*time.Second)
	ns := w.namespace("late")
	w.configMap(ns, "c")
	w.delete(ns)
	w.emptied(ns, configMaps)
	w.saysThat(ns, "failure", func(c conditions) bool {
		return c[2].reason == "ContentDeletionFailed" && strings.Contains(c[2].message, "leases.coordination.k8s.io") && c[3] == removed
	})
	mend()
	w.gone(ns)
}

func TestNothingIsReleasedWhileDiscoveryFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	ns := w.namespace("unknown")
	w.configMap(ns, "c")
	mend := w.Proxy.Answer(func(r apiproxy.Request) bool { return r.Path == "/apis" }, http.StatusServiceUnavailable, 0)
	w.delete(ns)
	w.saysThat(ns, "failure", func(c conditions) bool { return c[0].reason == "DiscoveryFailed" })
	if n := w.releases(ns); len(n) > 0 {
		t.Errorf("released: %v", n)
	}
	mend()
	w.gone(ns)
}

// An API server or a proxy that has just started may not know the path of the
// core group, which clients take for an empty one.
func TestNothingIsLeftBehindWhenDiscoveryLacksTheCoreGroup(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, controlplane.Shared(t), harness.Options{DiscoveryInterval: time.Hour})
	w.start(func(s *schema.NamespaceController) { s.DeletionGracePeriod.Duration = 0 })
	ns := w.namespace("unseen")
	w.configMap(ns, "c")
	mend := w.Proxy.Answer(func(r apiproxy.Request) bool { return r.Path == "/api" }, http.StatusNotFound, 0)
	w.delete(ns)
	w.saysThat(ns, "failure", func(c conditions) bool {
		return c[0] == verdict{corev1.ConditionTrue, "DiscoveryFailed", "discovery shows no namespaces"}
	})
	if n := w.releases(ns); len(n) > 0 {
		t.Errorf("released: %v", n)
	}
	mend()
	w.gone(ns)
	list, err := w.metadata.Resource(configMaps).Namespace(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// A 404 that is not the API server's does not end the work for a namespace.
func TestANamespaceThatAProxyDoesNotFindIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		match func(apiproxy.Request) bool
	}{
		{"read", func(r apiproxy.Request) bool { return r.Verb == "get" }},
		{"release", func(r apiproxy.Request) bool { return r.Subresource == "finalize" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start(func(s *schema.NamespaceController) { s.SyncPeriod.Duration, s.DeletionGracePeriod.Duration = 0, 0 })
			ns := w.namespace("hidden")
			asked := func(r apiproxy.Request) bool {
				return r.Resource == namespaces.GroupResource() && r.Name == ns && test.match(r)
			}
			mend := w.Proxy.Answer(asked, http.StatusNotFound, 0)
			w.delete(ns)
			harness.Eventually(t, soon, "second attempt", func(context.Context) error {
				if n := len(w.requests(ns, asked)); n < 2 {
					return fmt.Errorf("%d attempts", n)
				}
				return nil
			})
			mend()
			w.gone(ns)
		})
	}
}

func TestObjectsGoOneByOneWhereTheyCannotGoTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	defer w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Resource == configMaps.GroupResource() && r.Verb == "deletecollection"
	}, http.StatusMethodNotAllowed, 0)()
	ns := w.namespace("single")
	for i := range 3 {
		w.configMap(ns, fmt.Sprint("c-", i))
	}
	w.delete(ns)
	w.gone(ns)
	single := w.requests(ns, func(r apiproxy.Request) bool { return r.Resource == configMaps.GroupResource() && r.Verb == "delete" })
	if len(single) != 3 {
		t.Errorf("%d deletions of single objects, want 3: %v", len(single), single)
	}
}

// Two requests for each resource, and few others.
func TestManyConfigMapsNeedFewRequests(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	w.startDefault()
	ns := w.namespace("many")
	w.many(ns, 100)
	resources := 0
	lists, err := w.Admin.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for i := range list.APIResources {
			for _, verb := range list.APIResources[i].Verbs {
				if verb == "delete" {
					resources++
				}
			}
		}
	}
	at := w.delete(ns)
	w.emptied(ns, configMaps)
	t.Logf("its content was gone %s after the deletion", time.Since(at))
	w.step(ns, 5*time.Second)
	w.gone(ns)
	all := w.requests(ns, nil)
	writes := w.writes(ns)
	// Two for each resource, two reads of the namespace, and its release.
	if want := 2*resources + 3; len(all) > want {
		t.Errorf("%d requests for %d resources, want at most %d", len(all), resources, want)
	}
	// ConfigMaps and ServiceAccounts are in every namespace that has all controllers.
	if len(writes) != 3 {
		t.Errorf("%d writes, want two deletions and a release: %v", len(writes), writes)
	}
}

// many ConfigMaps, made by several at once.
func (w *world) many(ns string, count int) {
	w.t.Helper()
	numbers := make(chan int)
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for n := range numbers {
				_, err := w.Admin.CoreV1().ConfigMaps(ns).Create(w.t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c-", n)}}, metav1.CreateOptions{})
				if err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	for n := range count {
		numbers <- n
	}
	close(numbers)
	makers.Wait()
}

func TestSettingsChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(s *schema.NamespaceController) {
		s.SyncPeriod.Duration, s.DeletionGracePeriod.Duration = 0, 10*time.Minute
	})
	ns := w.namespace("live", func(n *corev1.Namespace) {
		n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, "example.com/x"}
	})
	w.configMap(ns, "c")
	w.delete(ns)
	w.emptied(ns, configMaps)
	if n := w.releases(ns); len(n) > 0 {
		t.Errorf("released within the grace period: %v", n)
	}
	w.instance.ApplyLive(section(func(s *schema.NamespaceController) { s.SyncPeriod.Duration = 0 }))
	w.says(ns, conditions{discovered, parsed, deleted, removed, unheld})
	w.instance.ApplyLive(section(func(s *schema.NamespaceController) { s.SyncPeriod.Duration = 100 * time.Millisecond }))
	reads := w.reads(ns)
	w.pass(ns, reads+2)
	w.finalize(ns)
	w.gone(ns)
}

// The reload law: 20 namespaces go, some at a time, while the controller is
// restarted at least 50 times and re-sized at least 20 times.
const (
	reloadNamespaces = 20
	reloadAtATime    = 5
	reloadRestarts   = 50
	reloadResizes    = 20
)

func TestReloadsAtAnyMomentChangeNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		grace   time.Duration
		disturb func(w *world) (stop func())
	}{
		// A single sweep has to find everything.
		{"reloads", 0, func(w *world) func() {
			return w.instance.Reload(uint64(time.Now().UnixNano()), reloadRestarts, reloadResizes)
		}},
		{"aborts", quick, func(w *world) func() { return w.instance.Disturb(uint64(time.Now().UnixNano())) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			living := map[types.UID]string{}
			var doomed []string
			for i := range reloadNamespaces {
				doomed = append(doomed, w.namespace("doomed"))
				w.fill(doomed[i])
			}
			neighbours := make([]string, 5)
			for i := range neighbours {
				neighbours[i] = w.namespace("living")
				for uid, name := range w.fill(neighbours[i]) {
					living[uid] = name
				}
			}
			removed := w.watchRemovals(living)
			w.start(func(s *schema.NamespaceController) { s.DeletionGracePeriod.Duration = test.grace })
			stop := sync.OnceFunc(test.disturb(w))
			t.Cleanup(stop)
			letGo := func(ns string) {
				w.emptied(ns, configMaps)
				w.letGo(configMaps, ns, "held")
			}
			for i, ns := range doomed {
				w.delete(ns)
				if i >= reloadAtATime {
					letGo(doomed[i-reloadAtATime])
				}
			}
			for _, ns := range doomed[reloadNamespaces-reloadAtATime:] {
				letGo(ns)
			}
			stop()
			w.gone(doomed...)

			// Their names are good for other namespaces.
			for _, ns := range doomed[:5] {
				again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{scope: w.label}}}
				if _, err := w.Admin.CoreV1().Namespaces().Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				if n, err := w.count(t.Context(), ns); err != nil || n > 0 {
					t.Errorf("%d objects left in %s: %v", n, ns, err)
				}
			}
			if gone := removed(); len(gone) > 0 {
				t.Errorf("deleted although they should live: %v", gone)
			}
			for _, ns := range neighbours {
				if n, err := w.count(t.Context(), ns); err != nil || n != 4 {
					t.Errorf("%d objects in %s, want 4: %v", n, ns, err)
				}
				if n, err := w.get(t.Context(), ns); err != nil || n == nil || n.DeletionTimestamp != nil || len(w.writes(ns)) > 0 {
					t.Errorf("%s was touched: %v, %v", ns, n, err)
				}
			}
		})
	}
}

// fill a namespace, and return what it holds.
func (w *world) fill(ns string) map[types.UID]string {
	w.t.Helper()
	made := map[types.UID]string{w.configMap(ns, "held", "example.com/x"): ns + "/held"}
	for i := range 2 {
		name := fmt.Sprint("c-", i)
		made[w.configMap(ns, name)] = ns + "/" + name
	}
	secret, err := w.Admin.CoreV1().Secrets(ns).Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	made[secret.UID] = ns + "/s"
	return made
}

// count the ConfigMaps and Secrets of a namespace.
func (w *world) count(ctx context.Context, ns string) (int, error) {
	held, err := w.Admin.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	secrets, err := w.Admin.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return len(held.Items) + len(secrets.Items), nil
}

// watchRemovals of what should live; the result tells which were deleted.
func (w *world) watchRemovals(living map[types.UID]string) func() []string {
	w.t.Helper()
	var mu sync.Mutex
	var removed []string
	note := func(event watch.EventType, object *metav1.PartialObjectMetadata) {
		if living[object.UID] == "" || event != watch.Deleted && object.DeletionTimestamp == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		removed = append(removed, living[object.UID])
	}
	for _, name := range []string{"configmaps", "secrets"} {
		harness.Follow(w.t, w.metadata.Resource(corev1.SchemeGroupVersion.WithResource(name)), metav1.ListOptions{}, note)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(removed)
	}
}

// What slips in while a standby takes over is found as well: it has seen the
// deletion, and its own sweep comes before the release.
func TestAStandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, controlplane.Shared(t), harness.Options{Standby: true})
	w.start()
	ns := w.namespace("standby")
	w.configMap(ns, "c")
	w.delete(ns)
	if writes := w.writes(ns); len(writes) > 0 {
		t.Errorf("a standby writes: %v", writes)
	}
	w.Lead()
	w.gone(ns)
	_, err := w.Admin.CoreV1().ConfigMaps(ns).Get(t.Context(), "c", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Error(errors.Join(errors.New("left behind"), err))
	}
}
