package resourcequota_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/garbagecollector"
	"github.com/wheelhouse-project/wheelhouse/controllers/resourcequota"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// What was admitted stays charged while the cache of pods lags behind that of
// quotas, however long, and also through a restart.
func TestACacheThatLagsGivesNothingBack(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.quota("q", amounts{"pods": "3"})
	// Once the API server charges, it charges for every pod.
	w.pod("p-0")
	w.used("q", amounts{"pods": "1"})
	release := w.engine.Proxy.HoldWatches(corev1.Resource("pods"))
	w.pod("p-1")
	w.pod("p-2")
	for _, restarted := range []bool{false, true} {
		if restarted {
			w.instance.Restart()
		}
		hard := amounts{"pods": "3", "secrets": fmt.Sprint(len(w.get("q").Spec.Hard))}
		w.change("q", func(q *corev1.ResourceQuota) { q.Spec.Hard = hard.list() })
		w.counted("q")
		// Longer than any object takes from its charge to its creation.
		harness.Throughout(t, 6*time.Second, "charge of pods that no cache shows", func(ctx context.Context) error {
			return w.shows(ctx, "q", amounts{"pods": "3"})
		})
	}
	if _, err := w.client.CoreV1().Pods(w.ns).Create(t.Context(), newPod("more"), metav1.CreateOptions{}); !refused(err) {
		t.Errorf("a fourth pod: %v", err)
	}
	release()
	w.deletePod("p-0")
	w.used("q", amounts{"pods": "2"})
}

// While the watch of quotas hangs, every write of one that has changed is in vain.
func TestAConflictIsNotRepeatedWithoutNews(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.quota("q", amounts{"configmaps": "5"})
	w.configMap("a")
	w.configMap("b")
	w.used("q", amounts{"configmaps": "2"})
	w.instance.CatchUp() // or what is deleted below may be what is not known to be used
	harness.Eventually(t, soon, "rest", func(context.Context) error {
		if status := w.instance.Work(); status.Busy > 0 || status.Depth > 0 {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	release := w.engine.Proxy.HoldWatches(corev1.Resource("resourcequotas"))
	defer release()
	w.change("q", func(q *corev1.ResourceQuota) { q.Labels = map[string]string{"a": "b"} })
	w.engine.Proxy.Forget()
	began := time.Now()
	w.deleteConfigMap("a")
	conflicts := func() int {
		return len(w.engine.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Resource == corev1.Resource("resourcequotas") && r.Code == http.StatusConflict
		}))
	}
	harness.Eventually(t, soon, "conflict", func(context.Context) error {
		if conflicts() == 0 {
			return errors.New("none")
		}
		return nil
	})
	harness.Throughout(t, 2*time.Second, "rest", func(context.Context) error {
		if n := conflicts(); n > 2+int(time.Since(began)/(5*time.Second)) {
			return fmt.Errorf("%d conflicts in %s", n, time.Since(began))
		}
		return nil
	})
	release()
	w.used("q", amounts{"configmaps": "1"})
}

// The first count of a quota may miss objects that were created just before
// and that its cache does not show yet. Another one finds them.
func TestObjectsFromJustBeforeTheQuotaAreFound(t *testing.T) {
	t.Parallel()
	w := running(t)
	release := w.engine.Proxy.HoldWatches(corev1.Resource("pods"))
	w.pod("early")
	w.quota("q", amounts{"pods": "3"})
	w.used("q", amounts{"pods": "0"})
	release()
	w.used("q", amounts{"pods": "1"})
}

// The watch of quotas may be behind that of what they count, so that an object
// has come and gone when its charge is seen.
func TestTheChargeOfAnObjectThatHasGoneIsGivenBack(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.quota("q", amounts{"configmaps": "5"})
	// A new quota is counted twice, but not later.
	w.falsify("q", amounts{"configmaps": "3"})
	w.used("q", amounts{"configmaps": "0"})
	w.engine.Proxy.DelayWatches(corev1.Resource("resourcequotas"), 3*time.Second)
	w.configMap("a")
	w.deleteConfigMap("a")
	w.used("q", amounts{"configmaps": "0"})
}

// A type that cannot be listed leaves the others of its quota alone, and is
// counted as soon as it can be.
func TestATypeThatCannotBeListedHidesNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	services := apischema.GroupResource{Resource: "services"}
	mend := w.engine.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Resource == services && (r.Verb == "list" || r.Verb == "watch")
	}, 503, 0)
	w.create("q", amounts{"pods": "5", "services": "5"})
	w.pod("uncharged")
	w.instance = w.engine.Start(resourcequota.Descriptor(), section(0))
	w.used("q", amounts{"pods": "1"})
	q := w.get("q")
	if _, ok := q.Status.Used["services"]; ok || len(q.Status.Hard) != 2 {
		t.Errorf("status %+v", q.Status)
	}
	w.deletePod("uncharged")
	w.used("q", amounts{"pods": "0"})
	mend()
	w.used("q", amounts{"pods": "0", "services": "0"})
}

// Which claims are requests of an extended resource, the DeviceClasses tell.
// Nothing is given back, and nothing taken for counted, while they are not known.
func TestClaimsAreNotForgottenWhileDeviceClassesCannotBeListed(t *testing.T) {
	t.Parallel()
	const requests = "requests.example.com/quota-slow"
	w := newWorld(t)
	w.deviceClass("quota-slow", ptr.To("example.com/quota-slow"))
	w.claim("c", exactly("quota-slow", 2), nil)
	w.create("known", amounts{"pods": "5", requests: "5"})
	w.create("new", amounts{"pods": "5", requests: "5"})
	w.falsify("known", amounts{requests: "2"})
	mend := w.engine.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Resource.Resource == "deviceclasses" && (r.Verb == "list" || r.Verb == "watch")
	}, http.StatusServiceUnavailable, 0)
	w.instance = w.engine.Start(resourcequota.Descriptor(), section(0))
	w.used("known", amounts{"pods": "0"})
	w.used("new", amounts{"pods": "0"})
	harness.Throughout(t, briefly, "use of what cannot be counted", func(ctx context.Context) error {
		if used, ok := w.get("new").Status.Used[requests]; ok {
			return fmt.Errorf("%s of the new quota are used", used.String())
		}
		return w.shows(ctx, "known", amounts{requests: "2"})
	})
	mend()
	w.used("new", amounts{requests: "2"})
	w.deleteClaim("c")
	w.used("known", amounts{requests: "0"})
	w.used("new", amounts{requests: "0"})
}

// A 404 that no API server has given does not say that the quota is gone.
func TestA404OfAProxyDoesNotEndACount(t *testing.T) {
	t.Parallel()
	w := running(t)
	isWrite := func(r apiproxy.Request) bool {
		return r.Resource == corev1.Resource("resourcequotas") && r.Subresource == "status" && r.Verb == "update"
	}
	mend := w.engine.Proxy.Answer(isWrite, http.StatusNotFound, 0)
	w.create("q", amounts{"pods": "5"})
	harness.Eventually(t, soon, "second attempt", func(context.Context) error {
		if n := len(w.engine.Proxy.Requests(isWrite)); n < 2 {
			return fmt.Errorf("%d attempts", n)
		}
		return nil
	})
	mend()
	w.counted("q")
}

func TestMonitorsAreSharedWithTheGarbageCollector(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.engine.Start(garbagecollector.Descriptor(), nil)
	w.quota("q", amounts{"pods": "5"})
	w.pod("p")
	w.used("q", amounts{"pods": "1"})
	asked := map[apischema.GroupResource]int{}
	for _, r := range w.engine.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "watch" && r.Code == 200 }) {
		asked[r.Resource]++
	}
	for resource, n := range asked {
		if n > 1 {
			t.Errorf("%d watches of %s", n, resource)
		}
	}
	if len(asked) < 20 {
		t.Errorf("only %d resources are watched", len(asked))
	}
	w.instance.Restart()
	w.ready()
	w.deletePod("p")
	w.used("q", amounts{"pods": "0"})
}

// A restart that finds its caches warm asks for nothing.
func TestARestartListsNothing(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.quota("q", amounts{"pods": "5"})
	monitors := w.summary().Monitors
	w.engine.Proxy.Forget()
	for range 3 {
		w.instance.Restart()
		w.ready()
	}
	if s := w.summary(); s.Monitors != monitors {
		t.Errorf("%d monitors after restarts, %d before", s.Monitors, monitors)
	}
	requests := w.engine.Proxy.Requests(func(r apiproxy.Request) bool {
		return (r.Verb == "list" || r.Verb == "watch") && r.Resource != (apischema.GroupResource{})
	})
	if len(requests) > 0 {
		t.Errorf("restarts sent %d lists and watches: %+v", len(requests), requests[0])
	}
}

// A burst of deletions is given back in few writes, and in fewer still where
// nobody waits for what is given back. Not beside tests that bring resources of
// their own, for which all quotas are counted again.
func TestABurstOfDeletionsTakesFewWrites(t *testing.T) {
	w := running(t)
	const maps = 60
	paces := map[string]time.Duration{"short": 100 * time.Millisecond, "roomy": time.Second}
	w.quota("short", amounts{"configmaps": "60"})
	w.quota("roomy", amounts{"configmaps": "1000"})
	for i := range maps {
		w.configMap(fmt.Sprint("m-", i))
	}
	for name := range paces {
		w.used(name, amounts{"configmaps": fmt.Sprint(maps)})
	}
	writes := func(name string) (n int) {
		for _, r := range w.engine.Writes(corev1.Resource("resourcequotas")) {
			if r.Namespace == w.ns && r.Name == name {
				n++
			}
		}
		return n
	}
	before := map[string]int{"short": writes("short"), "roomy": writes("roomy")}
	began := time.Now()
	for i := range maps {
		w.deleteConfigMap(fmt.Sprint("m-", i))
	}
	for name := range paces {
		w.used(name, amounts{"configmaps": "0"})
	}
	took := time.Since(began)
	for name, pace := range paces {
		n := writes(name) - before[name]
		// The first comes at once, and some counts have other reasons.
		if most := int(took/pace) + 4; n > most {
			w.t.Errorf("%d writes of the %s quota in %s, want at most %d", n, name, took, most)
		}
		w.t.Logf("%d writes of the %s quota for %d deletions in %s", n, name, maps, took)
	}
}
