package replicaset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	"github.com/wheelhouse-project/wheelhouse/test/podcensus"
)

// A reload at any moment changes nothing about where the cluster ends up: with
// at least 50 restarts and 20 changes of the number of workers, at random
// moments, the same pods are created and deleted as without any.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	const sets, high, low = 20, 12, 4
	c := start(t, harness.Options{})
	pods := podcensus.Take(t, c.client, c.ns)
	app := func(i int) string { return fmt.Sprint("web-", i) }
	for i := range sets {
		c.create(newReplicaSet(app(i), 0))
	}
	stop := c.controller.Reload(rand.Uint64(), 50, 20)

	// Up.
	for i := range sets {
		c.scale(app(i), high)
	}
	for i := range sets {
		harness.Eventually(t, minutes, "the pods of "+app(i), func(context.Context) error { return pods.Has(app(i), high) })
	}
	// All ready, as kubelets report it, then down.
	for i := range sets {
		for _, pod := range c.waitForPods(app(i), high) {
			c.setPodStatus(pod.Name, readySince(time.Now()))
		}
	}
	pods.Reset()
	for i := range sets {
		c.scale(app(i), low)
	}
	for i := range sets {
		harness.Eventually(t, minutes, "fewer pods of "+app(i), func(context.Context) error { return pods.Has(app(i), low) })
	}
	// A pod of each is lost and replaced. Then half of the sets are deleted, and
	// lose another one, which is not.
	for i := range sets {
		c.deletePod(c.waitForPods(app(i), low)[0].Name)
	}
	for i := range sets {
		harness.Eventually(t, minutes, "the replacement in "+app(i), func(context.Context) error {
			if ever := pods.Of(app(i)).Created; ever != high+1 {
				return fmt.Errorf("%d pods were created", ever)
			}
			return pods.Has(app(i), low)
		})
	}
	for i := range sets / 2 {
		c.deleteReplicaSet(app(i), metav1.DeletePropagationForeground)
		// A pod that goes before the deletion of its owner is seen is replaced.
		c.waitForStatus(app(i), "deletion seen", counts(low, low-1, low-1))
		c.deletePod(c.waitForPods(app(i), low)[0].Name)
	}
	stop()

	for i := range sets {
		want := low
		if i < sets/2 {
			want--
		}
		c.waitForStatus(app(i), "the final status", counts(int32(want), int32(want-1), int32(want-1)))
	}
	final := func(context.Context) error {
		for i := range sets {
			want, bound := low, low-1 // one pod is lost by the test itself
			if i < sets/2 {
				want, bound = low-1, low-2
			}
			if got := pods.Of(app(i)); got.Active != want || got.Fewest < bound || got.Most > high || got.Created != high+1 {
				return fmt.Errorf("pods of %s: %+v", app(i), got)
			}
		}
		return nil
	}
	harness.Eventually(t, soon, "the final state", final) // the census may be late
	harness.Throughout(t, aWhile, "the final state", final)
}

// touch makes an event of a ReplicaSet without changing what it asks for.
func (c *cluster) touch(name string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now())
	if _, err := c.client.AppsV1().ReplicaSets(c.ns).Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// While the cache of pods is behind, nothing is created or deleted a second
// time, whatever happens to the ReplicaSet, and whether the controller is
// restarted or not.
func TestStaleCacheIsNotActedUpon(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			pods := podcensus.Take(t, c.client, c.ns)
			c.create(newReplicaSet("web", 0))
			c.waitForStatus("web", "no replica", counts(0, 0, 0))
			writes := 0
			for _, step := range []struct{ replicas, requests int }{{5, 5}, {3, 2}} {
				release := c.Proxy.HoldWatches(podResource)
				c.scale("web", int32(step.replicas))
				writes += step.requests
				harness.Eventually(t, soon, "the requests", c.podWrites(writes))
				harness.Eventually(t, soon, "the pods", func(context.Context) error { return pods.Has("web", step.replicas) })
				ready := make(chan struct{})
				go func() {
					defer close(ready)
					if restart {
						c.controller.Restart()
					}
				}()
				c.touch("web")
				harness.Throughout(t, aWhile, "patience", c.podWrites(writes))
				if restart {
					select {
					case <-ready:
						t.Error("the controller began with a cache that lacks its own last writes")
					default:
					}
				}
				release()
				<-ready
				c.touch("web")
				c.waitForStatus("web", "the replicas", counts(int32(step.replicas), 0, 0))
				harness.Throughout(t, aWhile/4, "the number of pods", c.podWrites(writes))
			}
		})
	}
}

// A creation whose answer gets lost is counted, though the cache does not show
// it at first.
func TestLostAnswersMakeNoPodTwice(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	pods := podcensus.Take(t, c.client, c.ns)
	c.create(newReplicaSet("web", 0))
	c.waitForStatus("web", "no replica", counts(0, 0, 0))

	var answers atomic.Int64
	stop := c.Proxy.After(func(r apiproxy.Request) {
		if created(r) && r.Code == http.StatusCreated && answers.Add(1) == 4 {
			// A request that is carried out after its connection was cut may be so
			// at any later time.
			c.Proxy.Requests(nil)
			c.Proxy.Cut()
			c.Proxy.DelayWatches(podResource, time.Second)
			c.Proxy.Mend()
		}
	})
	c.scale("web", 20)
	harness.Eventually(t, minutes, "the pods", func(context.Context) error { return pods.Has("web", 20) })
	stop()
	c.Proxy.DelayWatches(podResource, 0)
	c.waitForStatus("web", "the replicas", counts(20, 0, 0))
	if answers.Load() < 4 {
		t.Fatal("no connection was cut")
	}
	if got := pods.Of("web"); got.Most != 20 || got.Created != 20 {
		t.Errorf("pods %+v", got)
	}
}

// A controller that is cancelled in the middle of its requests, as when
// leadership is lost, says nothing about it on the objects, and its successor
// ends where it would have ended.
func TestCancelledControllerReportsNothing(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	pods := podcensus.Take(t, c.client, c.ns)
	for i := range 10 {
		replicas := 10 + 5*i
		aborted := make(chan struct{})
		var creations atomic.Int64
		abortAt := 1 + rand.Int64N(int64(replicas))
		stop := c.Proxy.Before(func(r apiproxy.Request) {
			if created(r) && creations.Add(1) == abortAt {
				go func() {
					defer close(aborted)
					c.controller.Abort()
				}()
			}
		})
		name := fmt.Sprint("web-", i)
		c.create(newReplicaSet(name, int32(replicas)))
		harness.Eventually(t, soon, "the abortion", func(context.Context) error {
			select {
			case <-aborted:
				return nil
			default:
				return fmt.Errorf("%d writes so far", len(c.Writes(podResource)))
			}
		})
		stop()
		rs := c.get(name)
		if fault := noFailure(rs.Status); fault != "" {
			t.Errorf("%s: %s", fault, inJSON(rs.Status))
		}
		c.controller.Start()
		harness.Eventually(t, soon, "the pods", func(context.Context) error { return pods.Has(name, replicas) })
		c.waitForStatus(name, "the replicas", counts(int32(replicas), 0, 0))
	}
	list, err := c.client.CoreV1().Events(c.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + v1.EventTypeWarning})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("events %s, %v", inJSON(list.Items), err)
	}
}
