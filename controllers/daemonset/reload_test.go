package daemonset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/controllers/daemonset"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// A reload at any moment changes nothing about where the cluster ends up: with
// at least 50 restarts and 20 changes of the number of workers the same pods are
// created and deleted as without any, and a watch sees the bounds of each
// roll-out kept.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	const sets, nodes = 20, 5
	c := start(t, nodes)
	s := c.follow()
	app := func(i int) string { return fmt.Sprint("agent-", i) }
	surging := func(i int) bool { return i%4 == 3 }
	each := func(do func(name string, i int)) {
		for i := range sets {
			do(app(i), i)
		}
	}
	eachWaits := func(what string, wrong func(name string, i int) error) {
		t.Helper()
		each(func(name string, i int) {
			harness.Eventually(t, minutes, what+" of "+name, func(context.Context) error { return wrong(name, i) })
		})
	}
	stop := c.controller.Reload(rand.Uint64(), 50, 20)
	c.keepReady()

	// All appear.
	each(func(name string, i int) {
		strategy := rolling("1", "0")
		if surging(i) {
			strategy = rolling("0", "1")
		} else if i%2 == 0 {
			strategy = rolling("40%", "0") // of 5
		}
		c.create(newDaemonSet(name, strategy))
	})
	allReady := func(count int) func(string, int) error {
		return func(name string, _ int) error {
			if got := s.available(name); got != count {
				return fmt.Errorf("%d pods are ready", got)
			}
			return s.has(name, count)
		}
	}
	eachWaits("the pods", allReady(nodes))
	each(func(name string, _ int) { c.known(name, nodes) })

	// All are rolled out.
	s.reset()
	each(func(name string, _ int) { c.change(name, image("2")) })
	eachWaits("the roll-out", func(name string, i int) error {
		if got := s.created(name); got != 2*nodes {
			return fmt.Errorf("%d pods were created", got)
		}
		return allReady(nodes)(name, i)
	})
	each(func(name string, i int) {
		most, fewest := 1, nodes-1
		switch {
		case surging(i):
			most, fewest = 2, nodes
		case i%2 == 0:
			fewest = nodes - 2
		}
		if s.mostOnNode(name) > most || s.fewest(name) < fewest {
			t.Errorf("%s: %d pods on a node, %d nodes with a ready one", name, s.mostOnNode(name), s.fewest(name))
		}
	})

	// A node comes, another one goes.
	c.addNode(nodes + 1)
	eachWaits("the pod on a new node", allReady(nodes+1))
	c.deleteNode(nodes + 1)
	eachWaits("the nodes that are left", allReady(nodes))

	// Half are deleted, and lose a pod, which nobody replaces. The others lose one too.
	for i := range sets / 2 {
		c.delete(app(i), metav1.DeletePropagationForeground)
	}
	c.waitUntilSeen() // or a pod that goes is replaced
	each(func(name string, _ int) {
		found, err := c.list(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c.deletePod(found[1][0].Name)
	})
	for i := sets / 2; i < sets; i++ {
		harness.Eventually(t, minutes, "the replacement in "+app(i), func(context.Context) error { return allReady(nodes)(app(i), i) })
	}
	stop()

	for i := sets / 2; i < sets; i++ {
		c.waitForStatus(app(i), status{nodes, nodes, 0, nodes, nodes, nodes})
	}
	final := func(context.Context) error {
		for i := range sets {
			live, ever := nodes, 2*nodes+2
			if i < sets/2 {
				live, ever = nodes-1, 2*nodes+1
			}
			if err := s.has(app(i), live); err != nil {
				return err
			}
			if got := s.created(app(i)); got != ever {
				return fmt.Errorf("%s: %d pods were created, want %d", app(i), got, ever)
			}
			if most := s.mostOnNode(app(i)); most > 1 && !surging(i) {
				return fmt.Errorf("%s: %d pods on a node", app(i), most)
			}
		}
		return nil
	}
	harness.Eventually(t, soon, "the final state", final) // the census may be late
	harness.Throughout(t, aWhile, "the final state", final)
	for i := range sets {
		if history, err := c.revisions(t.Context(), app(i)); err != nil || len(history) != 2 {
			t.Errorf("%s: %d revisions, %v", app(i), len(history), err)
		}
	}
}

func TestAcceptance22_StopsWhileManyPodsAreMadeAndRolledOut(t *testing.T) {
	t.Parallel()
	const nodes = 60
	for _, aborted := range []bool{false, true} {
		t.Run(fmt.Sprint("requests cut off ", aborted), func(t *testing.T) {
			t.Parallel()
			c := start(t, nodes)
			s := c.follow()
			c.keepReady()
			var stop func()
			if aborted {
				stop = c.controller.Disturb(rand.Uint64())
			} else {
				stop = c.controller.Reload(rand.Uint64(), 20, 0)
			}
			c.create(newDaemonSet("agent", rolling("20%", "0")))
			c.known("agent", nodes)
			harness.Eventually(t, minutes, "the census", func(context.Context) error {
				if got := s.available("agent"); got != nodes {
					return fmt.Errorf("%d ready", got)
				}
				return nil
			})
			s.reset()
			c.change("agent", image("2"))
			c.waitForStatus("agent", status{nodes, nodes, 0, nodes, nodes, nodes})
			stop()
			c.waitForStatus("agent", status{nodes, nodes, 0, nodes, nodes, nodes})
			harness.Eventually(t, soon, "the census", func(context.Context) error {
				// A creation that was cut off may be carried out after all, when it is
				// not expected any more.
				if created := s.created("agent"); !aborted && created != 2*nodes {
					return fmt.Errorf("%d pods created", created)
				}
				return s.has("agent", nodes)
			})
			if s.fewest("agent") < nodes*8/10 || !aborted && s.mostOnNode("agent") != 1 {
				t.Errorf("%d available at the fewest, %d on a node", s.fewest("agent"), s.mostOnNode("agent"))
			}
		})
	}
}

// Deletions that are cut off are finished, at whatever point that happens. The
// API server may have marked a pod then without having removed it.
func TestDeletionsThatAreCutOffAreFinished(t *testing.T) {
	t.Parallel()
	const nodes = 24
	c := start(t, nodes)
	c.keepReady()
	c.create(newDaemonSet("agent", rolling("20%", "0")))
	c.waitForStatus("agent", status{nodes, nodes, 0, nodes, nodes, nodes})
	// A pod that is marked for long, and goes all the same.
	var finished atomic.Int64
	marked := map[types.UID]time.Time{}
	harness.Follow(t, c.client.CoreV1().Pods(c.ns), metav1.ListOptions{}, func(event watch.EventType, pod *v1.Pod) {
		since, known := marked[pod.UID]
		switch {
		case event != watch.Deleted && pod.DeletionTimestamp != nil && !known:
			marked[pod.UID] = time.Now()
		case event == watch.Deleted && known && time.Since(since) > 2*time.Second:
			finished.Add(1)
		}
	})
	began := make(chan struct{}, 1)
	c.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "delete" && r.Resource == podResource {
			select {
			case began <- struct{}{}:
			default: // one abort is enough
			}
		}
	})
	// How long after the request has come; what fits depends on the machine.
	var window atomic.Int64
	var aborts sync.WaitGroup
	ended := make(chan struct{})
	aborts.Go(func() {
		for {
			select {
			case <-began:
				<-time.After(rand.N(time.Duration(window.Load()))) // any moment is right
				c.controller.Abort()
				c.controller.Start()
			case <-ended:
				return
			}
		}
	})
	for tag := 2; tag < 32 && finished.Load() == 0; tag++ {
		window.Store(int64(25 * time.Millisecond << (tag % 5)))
		c.change("agent", image(fmt.Sprint(tag)))
		c.waitForStatus("agent", status{nodes, nodes, 0, nodes, nodes, nodes})
	}
	close(ended)
	aborts.Wait()
	if finished.Load() == 0 {
		t.Error("no deletion was cut off between its two steps")
	}
}

func TestAcceptance23_WorkersChangeDuringARollOut(t *testing.T) {
	t.Parallel()
	const nodes = 8
	c := start(t, nodes)
	s := c.follow()
	c.keepReady()
	c.create(newDaemonSet("agent"))
	c.known("agent", nodes)
	harness.Eventually(t, soon, "the census", func(context.Context) error {
		if got := s.available("agent"); got != nodes {
			return fmt.Errorf("%d ready", got)
		}
		return nil
	})
	s.reset()
	c.controller.Resize(1)
	c.change("agent", image("2"))
	for _, change := range []struct{ done, workers int }{{nodes / 3, 5}, {2 * nodes / 3, 1}, {nodes, 2}} {
		harness.Eventually(t, soon, "a part of the roll-out", func(context.Context) error {
			if got := s.created("agent"); got < nodes+change.done {
				return fmt.Errorf("%d created", got)
			}
			return nil
		})
		c.controller.Resize(change.workers)
	}
	c.waitForStatus("agent", status{nodes, nodes, 0, nodes, nodes, nodes})
	harness.Eventually(t, soon, "the census", func(context.Context) error { return s.has("agent", nodes) })
	if s.created("agent") != 2*nodes || s.mostOnNode("agent") != 1 || s.fewest("agent") < nodes-1 {
		t.Errorf("%d pods created, %d on a node, %d available at the fewest", s.created("agent"), s.mostOnNode("agent"), s.fewest("agent"))
	}
}

// A second process takes over from one that was killed in the middle of its
// requests, and makes nothing twice.
func TestCrashIsTakenOver(t *testing.T) {
	t.Parallel()
	const nodes = 30
	for _, crashAt := range []int64{2, 9, 25} {
		t.Run(fmt.Sprint("at request ", crashAt), func(t *testing.T) {
			t.Parallel()
			c := start(t, nodes)
			s := c.follow()
			var requests atomic.Int64
			crashed := make(chan struct{})
			// A request that is carried out after its process was killed may be so
			// at any later time: none is under way then.
			c.Proxy.Before(func(r apiproxy.Request) {
				if creation(r) && requests.Load() >= crashAt {
					<-crashed
				}
			})
			c.Proxy.After(func(r apiproxy.Request) {
				if creation(r) && requests.Add(1) == crashAt {
					go func() {
						defer close(crashed)
						c.Proxy.Requests(nil)
						c.Crash()
					}()
				}
			})
			c.create(newDaemonSet("agent"))
			<-crashed
			successor := harness.New(t, controlplane.Shared(t), harness.Options{Scope: scopeOf(c.ns)})
			successor.Start(daemonset.Descriptor(), nil)
			harness.Eventually(t, minutes, "the pods", func(context.Context) error { return s.has("agent", nodes) })
			c.waitForStatus("agent", status{desired: nodes, current: nodes, updated: nodes})
			if s.created("agent") != nodes || s.mostOnNode("agent") != 1 {
				t.Errorf("%d pods were created, up to %d on a node", s.created("agent"), s.mostOnNode("agent"))
			}
			if history, err := c.revisions(t.Context(), "agent"); err != nil || len(history) != 1 {
				t.Errorf("%d revisions, %v", len(history), err)
			}
		})
	}
}

// A creation whose answer gets lost is counted, though the cache does not show
// it at first.
func TestLostAnswersMakeNoPodTwice(t *testing.T) {
	t.Parallel()
	const nodes = 20
	c := start(t, nodes)
	s := c.follow()
	var answers atomic.Int64
	stop := c.Proxy.After(func(r apiproxy.Request) {
		if creation(r) && r.Code == http.StatusCreated && answers.Add(1) == 4 {
			// A request that is carried out after its connection was cut may be so
			// at any later time.
			c.Proxy.Requests(nil)
			c.Proxy.Cut()
			c.Proxy.DelayWatches(podResource, time.Second)
			c.Proxy.Mend()
		}
	})
	c.create(newDaemonSet("agent"))
	harness.Eventually(t, minutes, "the pods", func(context.Context) error { return s.has("agent", nodes) })
	stop()
	c.Proxy.DelayWatches(podResource, 0)
	c.waitForStatus("agent", status{desired: nodes, current: nodes, updated: nodes})
	if answers.Load() < 4 || s.created("agent") != nodes || s.mostOnNode("agent") != 1 {
		t.Errorf("%d answers, %d pods created, %d on a node", answers.Load(), s.created("agent"), s.mostOnNode("agent"))
	}
}

// While the cache of pods is behind, nothing is created or deleted a second
// time, whatever happens to the DaemonSet, its nodes and the controller.
func TestStaleCacheIsNotActedUpon(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	found := c.startReady(newDaemonSet("agent"), 1, 2, 3)
	release := c.Proxy.HoldWatches(podResource)
	c.Proxy.Forget()
	c.change("agent", image("2"))
	deletions := func(context.Context) error {
		if writes := c.Writes(podResource); len(writes) != 1 || writes[0].Verb != "delete" {
			return fmt.Errorf("writes %v", writes)
		}
		return nil
	}
	harness.Eventually(t, soon, "one deletion", deletions)
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		c.controller.Restart()
	}()
	c.touch("agent")
	c.changeNode(1, func(node *v1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, "a", "b") })
	harness.Throughout(t, aWhile, "patience", deletions)
	select {
	case <-ready:
		t.Error("the controller began with a cache that lacks its own last write")
	default:
	}
	release()
	<-ready
	after := c.waitUntil("agent", "one pod replaced", images(2, 1))
	kept := 0
	for node := range found {
		if after[node][0].Name == found[node][0].Name {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d pods were kept", kept)
	}
}
