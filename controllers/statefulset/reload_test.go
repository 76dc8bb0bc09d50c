package statefulset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/statefulset"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// minutes is ample for many sets on a busy machine.
const minutes = 3 * time.Minute

// settled waits until every one of the sets has so many pods, and so many that ever were.
func (j *journal) settled(c *cluster, sets, pods, created int) {
	c.t.Helper()
	for i := range sets {
		harness.Eventually(c.t, minutes, "the pods", func(context.Context) error {
			return j.has(fmt.Sprint("web-", i), pods, created)
		})
	}
}

// A reload at any moment changes nothing about where the cluster ends up: with
// at least 50 restarts and 20 changes of the number of workers, at random
// moments, the same pods are created and deleted, in the same order, as without any.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	const sets = 20
	c := start(t, harness.Options{})
	j := c.follow()
	app := func(i int) string { return fmt.Sprint("web-", i) }
	stop := c.controller.Reload(1, 50, 20)
	for i := range sets {
		c.create(newSet(app(i), 2))
	}
	j.settled(c, sets, 2, 2)
	for i := range sets {
		c.change(app(i), replicas(4))
	}
	j.settled(c, sets, 4, 4)
	for i := range sets {
		c.change(app(i), image("2"))
	}
	j.settled(c, sets, 4, 8)
	for i := range sets {
		c.change(app(i), replicas(1))
	}
	j.settled(c, sets, 1, 8)
	for i := range sets / 2 {
		j.loosen(app(i))
		c.deleteSet(app(i), metav1.DeletePropagationForeground)
	}
	// There is no order between two watches, but there is within that of sets: a
	// pod that goes before the deletion of its set is seen is replaced, and rightly so.
	c.create(newSet("next", 0))
	c.waitForStatus("next", "the next set", complete(0))
	for i := range sets / 2 {
		// What the garbage collector does first. Nothing comes back.
		c.deletePod(app(i) + "-0")
	}
	stop()

	wrong := func(context.Context) error {
		for i := range sets {
			pods := 1
			if i < sets/2 {
				pods = 0
			}
			if err := j.has(app(i), pods, 8); err != nil {
				return err
			}
		}
		return nil
	}
	for i := sets / 2; i < sets; i++ {
		c.waitForStatus(app(i), "the final status", complete(1))
	}
	harness.Eventually(t, minutes, "the final state", wrong)
	harness.Throughout(t, aWhile, "the final state", wrong)
	claims, err := c.client.CoreV1().PersistentVolumeClaims(c.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) != sets*4 {
		t.Errorf("%d claims, %v", len(claims.Items), err)
	}
	if history, err := c.revisions(t.Context()); err != nil || len(history) != sets*2+1 {
		t.Errorf("%d revisions, %v", len(history), err)
	}
}

// Stops and aborts in the middle of an update, at random moments, change
// nothing either: no ordinal twice, no pod replaced twice.
func TestAcceptance25_UpdateSurvivesStops(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	j := c.follow()
	c.create(newSet("web", 5, partition(1)))
	harness.Eventually(t, soon, "five pods", func(context.Context) error { return j.has("web", 5, 5) })
	kept := c.uid("web-0")
	c.waitForStatus("web", "a complete set", complete(5))
	for round := range 5 {
		c.change("web", image(fmt.Sprint("round-", round)))
		for range 4 {
			timer := time.NewTimer(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
			<-timer.C
			if rand.IntN(2) == 0 {
				c.controller.Stop()
			} else {
				c.controller.Abort()
			}
			c.controller.Start()
		}
		harness.Eventually(t, soon, "the update", func(context.Context) error { return j.has("web", 5, 5+4*(round+1)) })
	}
	c.waitForStatus("web", "the partitioned update", counts(5, 5, 5, 1, 4))
	if c.uid("web-0") != kept {
		t.Error("the pod below the partition was replaced")
	}
}

// A second instance goes on where the first was killed.
func TestCrashIsTakenOver(t *testing.T) {
	t.Parallel()
	const sets = 5
	c := start(t, harness.Options{})
	j := c.follow()
	app := func(i int) string { return fmt.Sprint("web-", i) }
	for i := range sets {
		c.create(newSet(app(i), 3))
	}
	j.settled(c, sets, 3, 3)
	for life := range 3 {
		var writes atomic.Int64
		crashAt := 1 + rand.Int64N(20)
		crash := make(chan struct{})
		stop := c.Proxy.Before(func(r apiproxy.Request) {
			if r.Write() && writes.Add(1) == crashAt {
				close(crash)
			}
		})
		for i := range sets {
			c.change(app(i), image(fmt.Sprint("life-", life)))
		}
		select {
		case <-crash:
		case <-time.After(soon):
			t.Fatal("no write to crash at")
		}
		stop()
		successor := harness.New(t, controlplane.Shared(t), harness.Options{Scope: apiproxy.Scope{Namespace: c.ns}, Standby: true})
		standby := successor.Start(statefulset.Descriptor(), nil)
		c.Crash()
		successor.Lead()
		standby.WaitReady()
		c.Engine, c.controller, c.client = successor, standby, successor.Admin
		j.settled(c, sets, 3, 3*(life+2))
	}
	for i := range sets {
		c.waitForStatus(app(i), "the final status", complete(3))
	}
}

// While a cache is behind, nothing is done a second time, whatever happens to
// the set, and whether the controller is restarted or not.
func TestStaleCacheIsNotActedUpon(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			c.running(newSet("web", 3, withoutClaims))
			c.Proxy.Forget()
			release := c.Proxy.HoldWatches(podResource)
			c.change("web", image("2"))
			c.waitForPods("web-0 web-1")
			ready := make(chan struct{})
			go func() {
				defer close(ready)
				if restart {
					c.controller.Restart()
				}
			}()
			c.change("web", func(set *appsv1.StatefulSet) { set.Annotations = map[string]string{"touched": ""} })
			harness.Throughout(t, aWhile, "patience", func(context.Context) error {
				if writes := c.Writes(podResource); len(writes) != 1 {
					return fmt.Errorf("writes to pods: %v", writes)
				}
				return nil
			})
			release()
			<-ready
			c.waitForPod("web-2", hasImage("2"))
			if writes := c.Writes(podResource); len(writes) != 2 {
				t.Errorf("writes to pods: %v", writes)
			}
		})
	}
}

// A deletion whose answer gets lost counts, though the cache does not show it at first.
func TestLostAnswersCostNoSecondPod(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, withoutClaims, parallel))
	uids := map[types.UID]bool{c.uid("web-0"): true, c.uid("web-1"): true}
	var lost atomic.Bool
	stop := c.Proxy.After(func(r apiproxy.Request) {
		if r.Resource == podResource && r.Verb == "delete" && r.Code == http.StatusOK && lost.CompareAndSwap(false, true) {
			c.Proxy.Cut()
			c.Proxy.DelayWatches(podResource, time.Second)
			c.Proxy.Mend()
		}
	})
	c.change("web", image("2"))
	c.waitForPod("web-2", hasImage("2"))
	stop()
	c.Proxy.DelayWatches(podResource, 0)
	harness.Throughout(t, aWhile, "the other pods", func(ctx context.Context) error {
		for i := range 2 {
			pod, err := c.pod(ctx, fmt.Sprint("web-", i))
			if err != nil || pod == nil || !uids[pod.UID] {
				return fmt.Errorf("web-%d was replaced while web-2 is not ready: %w", i, err)
			}
		}
		return nil
	})
	if !lost.Load() {
		t.Error("no answer was lost")
	}
}

// A reconcile that finds everything done writes nothing.
func TestNoWriteWithoutNeed(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, retention(deleteToo, deleteToo)))
	for i := range 3 {
		c.waitForOwners(fmt.Sprint("data-web-", i), "StatefulSet/web")
	}
	c.Proxy.Forget()
	c.controller.Restart()
	c.patchPod("web-1", `{"metadata":{"labels":{"more":"labels"}}}`)
	c.patchClaim("data-web-1", `{"metadata":{"finalizers":null}}`)
	c.controller.CatchUp()
	harness.Throughout(t, aWhile, "no writes", func(context.Context) error {
		writes := c.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Write() && slices.Contains([]apischema.GroupResource{podResource, claimResource, setResource, revisionResource}, r.Resource)
		})
		if len(writes) > 0 {
			return fmt.Errorf("writes: %v", writes)
		}
		return nil
	})
	// As many requests as there are things to be done, for a set that is new.
	c.Proxy.Forget()
	c.create(newSet("db", 1))
	c.waitForPod("db-0")
	c.setPhase("db-0", v1.PodRunning, true, time.Now().Add(-time.Minute))
	c.waitForStatus("db", "a complete set", complete(1))
	for resource, most := range map[string]int{"pods": 1, "persistentvolumeclaims": 1, "controllerrevisions": 1, "statefulsets": 3} {
		writes := c.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Write() && r.Resource.Resource == resource && r.Subresource != "token"
		})
		if len(writes) > most {
			t.Errorf("%d writes to %s: %v", len(writes), resource, writes)
		}
	}
}
