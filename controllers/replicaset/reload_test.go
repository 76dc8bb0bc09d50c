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
)

// A reload at any moment changes nothing about where the cluster ends up: with
// at least 50 restarts and 20 changes of the number of workers, at random
// moments, the same pods are created and deleted as without any.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	const sets, high, low = 20, 12, 4
	c := start(t, harness.Options{})
	pods := c.watchPods()
	app := func(i int) string { return fmt.Sprint("web-", i) }
	for i := range sets {
		c.create(newReplicaSet(app(i), 0))
	}
	stop := c.disturb(50, 20)

	// Up.
	for i := range sets {
		c.scale(app(i), high)
	}
	for i := range sets {
		harness.Eventually(t, minutes, "the pods of "+app(i), func(context.Context) error { return pods.has(app(i), high) })
	}
	// All ready, as kubelets report it, then down.
	for i := range sets {
		for _, pod := range c.waitForPods(app(i), high) {
			c.setPodStatus(pod.Name, readySince(time.Now()))
		}
	}
	pods.reset()
	for i := range sets {
		c.scale(app(i), low)
	}
	for i := range sets {
		harness.Eventually(t, minutes, "fewer pods of "+app(i), func(context.Context) error { return pods.has(app(i), low) })
	}
	// A pod of each is lost and replaced. Then half of the sets are deleted, and
	// lose another one, which is not.
	for i := range sets {
		c.deletePod(c.waitForPods(app(i), low)[0].Name)
	}
	for i := range sets {
		harness.Eventually(t, minutes, "the replacement in "+app(i), func(context.Context) error {
			if _, _, _, ever := pods.of(app(i)); ever != high+1 {
				return fmt.Errorf("%d pods were created", ever)
			}
			return pods.has(app(i), low)
		})
	}
	for i := range sets / 2 {
		c.deleteReplicaSet(app(i), metav1.DeletePropagationForeground)
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
	harness.Throughout(t, aWhile, "the final state", func(context.Context) error {
		for i := range sets {
			want, bound := low, low-1 // one pod is lost by the test itself
			if i < sets/2 {
				want, bound = low-1, low-2
			}
			active, fewest, most, ever := pods.of(app(i))
			if active != want || fewest < bound || most > high || ever != high+1 {
				return fmt.Errorf("%s: %d active pods, %d at the fewest, %d at most, %d created", app(i), active, fewest, most, ever)
			}
		}
		return nil
	})
}

// disturb restarts and resizes the controller at random moments. The returned
// function waits until that was done at least so often, and ends it.
func (c *cluster) disturb(restarts, resizes int64) (stop func()) {
	var restarted, resized atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			select {
			case <-time.After(time.Duration(rand.Int64N(int64(100 * time.Millisecond)))):
			case <-ctx.Done():
			}
			if rand.IntN(3) == 0 {
				c.controller.Resize(1 + rand.IntN(8))
				resized.Add(1)
			} else {
				c.controller.Restart()
				restarted.Add(1)
			}
		}
	}()
	return func() {
		c.t.Helper()
		harness.Eventually(c.t, minutes, "restarts", func(context.Context) error {
			if restarted.Load() < restarts || resized.Load() < resizes {
				return fmt.Errorf("%d restarts, %d resizes", restarted.Load(), resized.Load())
			}
			return nil
		})
		cancel()
		<-done
		c.t.Logf("%d restarts, %d changes of the number of workers", restarted.Load(), resized.Load())
	}
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
			pods := c.watchPods()
			c.create(newReplicaSet("web", 0))
			c.waitForStatus("web", "no replica", counts(0, 0, 0))
			writes := 0
			for _, step := range []struct{ replicas, requests int }{{5, 5}, {3, 2}} {
				release := c.Proxy.HoldWatches(podResource)
				c.scale("web", int32(step.replicas))
				writes += step.requests
				harness.Eventually(t, soon, "the requests", c.podWrites(writes))
				harness.Eventually(t, soon, "the pods", func(context.Context) error { return pods.has("web", step.replicas) })
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
	pods := c.watchPods()
	c.create(newReplicaSet("web", 0))
	c.waitForStatus("web", "no replica", counts(0, 0, 0))

	var answers atomic.Int64
	stop := c.Proxy.After(func(r apiproxy.Request) {
		if created(r) && r.Code == http.StatusCreated && answers.Add(1) == 4 {
			c.Proxy.Cut()
			c.Proxy.DelayWatches(podResource, time.Second)
			c.Proxy.Mend()
		}
	})
	c.scale("web", 20)
	harness.Eventually(t, minutes, "the pods", func(context.Context) error { return pods.has("web", 20) })
	stop()
	c.Proxy.DelayWatches(podResource, 0)
	c.waitForStatus("web", "the replicas", counts(20, 0, 0))
	if answers.Load() < 4 {
		t.Fatal("no connection was cut")
	}
	if _, _, most, ever := pods.of("web"); most != 20 || ever != 20 {
		t.Errorf("%d pods at most, %d created", most, ever)
	}
}

// A controller that is cancelled in the middle of its requests, as when
// leadership is lost, says nothing about it on the objects, and its successor
// ends where it would have ended.
func TestCancelledControllerReportsNothing(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	pods := c.watchPods()
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
		harness.Eventually(t, soon, "the pods", func(context.Context) error { return pods.has(name, replicas) })
		c.waitForStatus(name, "the replicas", counts(int32(replicas), 0, 0))
	}
	list, err := c.client.CoreV1().Events(c.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + v1.EventTypeWarning})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("events %s, %v", inJSON(list.Items), err)
	}
}
