package daemonset_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance08_RollingUpdate(t *testing.T) {
	t.Parallel()
	t.Run("one at a time", func(t *testing.T) {
		t.Parallel()
		c := start(t, 5)
		c.startReady(newDaemonSet("agent"), 1, 2, 3, 4, 5)
		c.change("agent", image("2"))
		for done := range 5 {
			found := c.waitUntil("agent", "one more pod replaced", images(4-done, done+1))
			if done == 1 {
				c.always("agent", "patience", images(3, 2))
			}
			c.setPodStatus(ready, found.withImage("2")...)
		}
		c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5, ready: 5, available: 5})
	})
	t.Run("not before it is available", func(t *testing.T) {
		t.Parallel()
		c := start(t, 2)
		c.startReady(newDaemonSet("agent", minReady(2)), 1, 2)
		c.change("agent", image("2"))
		found := c.waitUntil("agent", "one pod replaced", images(1, 1))
		readyAt := time.Now()
		c.setPodStatus(ready, found.withImage("2")...)
		c.waitUntil("agent", "the other", images(0, 2))
		// The API keeps times in whole seconds.
		if waited := time.Since(readyAt); waited < time.Second {
			t.Errorf("the next pod was replaced after %s", waited)
		}
	})
	t.Run("a share", func(t *testing.T) {
		t.Parallel()
		c := start(t, 5)
		c.startReady(newDaemonSet("agent", rolling("30%", "0")), 1, 2, 3, 4, 5)
		c.change("agent", image("2"))
		c.waitUntil("agent", "two pods replaced", images(3, 2))
		c.always("agent", "patience", images(3, 2))
	})
}

func TestAcceptance09_PodsThatAreNoUseAreReplacedFirst(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	found := c.startReady(newDaemonSet("agent"), 1, 2, 3, 4, 5)
	c.setPodStatus(notReady, found[2][0], found[4][0])
	c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5, ready: 3, available: 3})
	c.change("agent", image("2"))
	replaced := c.waitUntil("agent", "two pods replaced", images(3, 2))
	for _, node := range []int{1, 3, 5} {
		if replaced[node][0].Name != found[node][0].Name {
			t.Errorf("the ready pod on node %d was replaced", node)
		}
	}
	c.always("agent", "patience", same(replaced))
}

func TestAcceptance10_Surge(t *testing.T) {
	t.Parallel()
	t.Run("beside the old one", func(t *testing.T) {
		t.Parallel()
		c := start(t, 5)
		c.startReady(newDaemonSet("agent", rolling("0", "1")), 1, 2, 3, 4, 5)
		never := c.watchFewest("agent", 5)
		c.change("agent", image("2"))
		for done := range 5 {
			found := c.waitUntil("agent", "a pod beside an old one", images(5-done, done+1))
			if done == 1 {
				c.always("agent", "patience", images(4, 2))
			}
			c.setPodStatus(ready, found.withImage("2")...)
		}
		c.waitUntil("agent", "the last old pod gone", images(0, 5))
		c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5, ready: 5, available: 5})
		never()
	})
	t.Run("old one not ready", func(t *testing.T) {
		t.Parallel()
		c := start(t, 3)
		found := c.startReady(newDaemonSet("agent", rolling("0", "1")), 1, 2, 3)
		c.setPodStatus(notReady, found[1][0], found[2][0])
		c.waitForStatus("agent", status{desired: 3, current: 3, updated: 3, ready: 1, available: 1})
		c.change("agent", image("2"))
		// Two that are no use are replaced at once, whatever the surge.
		after := c.waitUntil("agent", "replacements", images(1, 3))
		if len(after[3]) != 2 || len(after[1]) != 1 || len(after[2]) != 1 {
			t.Errorf("pods %v", after.names())
		}
		if !slices.ContainsFunc(after[3], func(pod v1.Pod) bool { return pod.Name == found[3][0].Name }) {
			t.Error("the ready pod was replaced")
		}
	})
	t.Run("old one terminating", func(t *testing.T) {
		t.Parallel()
		c := start(t, 2)
		found := c.startReady(newDaemonSet("agent", rolling("0", "1"), finalizer), 1, 2)
		c.deletePod(found[1][0].Name)
		after := c.waitForPods("agent", 1, 2)
		if after[1][0].Name == found[1][0].Name || after[2][0].Name != found[2][0].Name {
			t.Errorf("want a new pod on node 1 only: %v", after.names())
		}
	})
	t.Run("terminating without surge", func(t *testing.T) {
		t.Parallel()
		c := start(t, 2)
		found := c.startReady(newDaemonSet("agent", finalizer), 1, 2)
		c.deletePod(found[1][0].Name)
		c.waitForPods("agent", 2)
		c.controller.CatchUp()
		c.always("agent", "one pod", images(1, 0))
		c.changePod(found[1][0].Name, func(pod *v1.Pod) { pod.Finalizers = nil })
		c.waitForPods("agent", 1, 2)
	})
}

// watchFewest checks until the returned function is called that app always has
// so many available pods.
func (c *cluster) watchFewest(app string, fewest int) (stop func()) {
	c.t.Helper()
	s := c.follow()
	harness.Eventually(c.t, soon, "the pods", func(context.Context) error {
		if got := s.available(app); got < fewest {
			return fmt.Errorf("%d available pods", got)
		}
		return nil
	})
	s.reset()
	return func() {
		c.t.Helper()
		if got := s.fewest(app); got < fewest {
			c.t.Errorf("%d pods available at some time, want %d", got, fewest)
		}
	}
}

func TestAcceptance11_SurgeWaitsForMinReadySeconds(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.startReady(newDaemonSet("agent", rolling("0", "1"), minReady(3)), 1, 2)
	c.change("agent", image("2"))
	found := c.waitUntil("agent", "a pod beside an old one", images(2, 1))
	readyAt := time.Now()
	c.setPodStatus(ready, found.withImage("2")...)
	c.waitUntil("agent", "the old one gone, the next one made", images(1, 2))
	// The API keeps times in whole seconds.
	if waited := time.Since(readyAt); waited < 2*time.Second {
		t.Errorf("the old pod was deleted after %s", waited)
	}
}

func TestAcceptance12_SurgeOntoOtherNodes(t *testing.T) {
	t.Parallel()
	c := start(t, 6)
	zones := map[int]string{1: "zone-y", 2: "zone-y", 3: "zone-z", 4: "zone-z", 5: "common", 6: "common"}
	for node, zone := range zones {
		c.taint(node, taint(zone, v1.TaintEffectNoSchedule))
	}
	c.controller.CatchUp() // there is no order between two watches
	tolerate := func(zones ...string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Spec.Tolerations = nil
			for _, zone := range zones {
				ds.Spec.Template.Spec.Tolerations = append(ds.Spec.Template.Spec.Tolerations, v1.Toleration{Key: zone, Operator: v1.TolerationOpExists})
			}
		}
	}
	c.startReady(newDaemonSet("agent", rolling("0", "1"), tolerate("zone-y", "common")), 1, 2, 5, 6)
	never := c.watchFewest("agent", 4)
	c.change("agent", tolerate("zone-z", "common"), image("2"))
	// New ones on 3 and 4, a surge on 5 or 6, the old ones on 1, 2, 5 and 6.
	found := c.waitUntil("agent", "new pods", images(4, 3))
	c.always("agent", "the old pods", images(4, 3))
	c.setPodStatus(ready, found[3]...)
	c.waitUntil("agent", "one old pod gone", func(p pods) string {
		if len(p[1])+len(p[2]) != 1 || len(p[5])+len(p[6]) != 3 {
			return fmt.Sprint(p.names())
		}
		return ""
	})
	c.keepReady("agent")
	c.waitForPods("agent", 3, 4, 5, 6)
	c.waitForStatus("agent", status{desired: 4, current: 4, updated: 4, ready: 4, available: 4})
	never()
}

func TestAcceptance13_OnDelete(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	found := c.startReady(newDaemonSet("agent", onDelete), 1, 2, 3)
	c.change("agent", image("2"))
	c.waitForStatus("agent", status{desired: 3, current: 3, ready: 3, available: 3})
	c.always("agent", "the old pods", same(found))
	c.deletePod(found[2][0].Name)
	after := c.waitUntil("agent", "a new pod", images(2, 1))
	if after[2][0].Labels["controller-revision-hash"] == found[2][0].Labels["controller-revision-hash"] {
		t.Error("the new pod has the old hash")
	}
	c.waitForStatus("agent", status{desired: 3, current: 3, ready: 2, available: 2, updated: 1})
}

func TestAcceptance14_RollbackInMidRollOut(t *testing.T) {
	t.Parallel()
	c := start(t, 4)
	found := c.startReady(newDaemonSet("agent"), 1, 2, 3, 4)
	c.change("agent", image("2"))
	half := c.waitUntil("agent", "one pod replaced", images(3, 1))
	c.setPodStatus(ready, half.withImage("2")...)
	half = c.waitUntil("agent", "two pods replaced", images(2, 2))
	c.change("agent", image("1"))
	c.controller.CatchUp() // or the roll-out goes on with the pod that gets ready
	c.keepReady("agent")
	after := c.waitUntil("agent", "all pods taken back", images(4, 0))
	for node, pods := range half {
		if pods[0].Spec.Containers[0].Image == "registry.example/c:1" && after[node][0].Name != found[node][0].Name {
			t.Errorf("the pod on node %d was restarted", node)
		}
	}
	history, err := c.revisions(t.Context(), "agent")
	if err != nil {
		t.Fatal(err)
	}
	if len(history) != 2 || history[0].Revision != 2 || history[1].Revision != 3 ||
		history[1].Labels["controller-revision-hash"] != found[1][0].Labels["controller-revision-hash"] {
		t.Errorf("history %s", inJSON(history))
	}
}
