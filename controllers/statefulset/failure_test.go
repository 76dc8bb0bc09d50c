package statefulset_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// writes counts requests of a verb to pods.
func (c *cluster) writes(verb string) int {
	return len(c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource == podResource && r.Verb == verb }))
}

// A parallel update that stalls, of a set without rollingUpdate, does not make
// and delete a pod again and again.
func TestStalledParallelUpdateIsNoLoop(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, parallel, strategy(appsv1.RollingUpdateStatefulSetStrategyType), withoutClaims))
	if c.get("web").Spec.UpdateStrategy.RollingUpdate != nil {
		t.Fatal("the API server has a default for rollingUpdate")
	}
	uid := c.uid("web-2")
	c.change("web", image("2"))
	c.waitForPod("web-2", notUID(uid), hasImage("2"))
	c.Proxy.Forget()
	c.deletePod("web-0")
	c.waitForPod("web-0", hasImage("2"))
	harness.Throughout(t, aWhile, "one creation", func(context.Context) error {
		if created, deleted := c.writes("create"), c.writes("delete"); created > 1 || deleted > 0 {
			return fmt.Errorf("%d pods created, %d deleted", created, deleted)
		}
		return nil
	})
}

// An ordered set without rollingUpdate replaces what the update has come to
// with the new template, and the rest with the old one.
func TestOrderedUpdateWithoutRollingUpdate(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, strategy(appsv1.RollingUpdateStatefulSetStrategyType), withoutClaims))
	uids := []types.UID{c.uid("web-0"), c.uid("web-1"), c.uid("web-2")}
	c.change("web", image("2"))
	c.waitForPod("web-2", notUID(uids[2]), hasImage("2"))
	c.deletePod("web-0")
	c.waitForPod("web-0", notUID(uids[0]), hasImage("1"))
	c.ready("web-0", "web-2")
	c.waitForPod("web-1", notUID(uids[1]), hasImage("2"))
	c.ready("web-1")
	c.waitForPod("web-0", hasImage("2"))
	c.ready("web-0")
	c.waitForStatus("web", "a complete update", complete(3))
}

// A set of the same name as one whose pods are not gone yet makes its pods when
// the names are free.
func TestSuccessorTakesNamesAsTheyGetFree(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	set := newSet("web", 1)
	c.running(set.DeepCopy())
	uid := c.uid("web-0")
	c.deleteSet("web", metav1.DeletePropagationBackground)
	c.create(set)
	harness.Eventually(t, soon, "some refusals", func(context.Context) error {
		if refused := c.writes("create"); refused < 3 {
			return fmt.Errorf("%d tries", refused)
		}
		return nil
	})
	c.deletePod("web-0")
	c.waitForPod("web-0", notUID(uid), ownedBy("StatefulSet/web"))
}

// What the API server refuses is told, and tried again with growing pauses.
func TestRefusedPodsAreTriedWithPauses(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	begin := time.Now()
	stop := c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Resource == podResource && r.Verb == "create" }, 422, 0)
	c.create(newSet("web", 1, withoutClaims))
	c.waitForEvent("web", v1.EventTypeWarning, "FailedCreate", "Create Pod web-0 in StatefulSet web failed error: ")
	c.waitForStatus("web", "no replica", counts(0, 0, 0, 0, 0))
	harness.Throughout(t, 3*time.Second, "few tries", func(context.Context) error {
		// The pauses double from 5 ms on. Events of the set cause some tries too.
		most := 4 + int(math.Log2(1+float64(time.Since(begin))/float64(5*time.Millisecond)))
		if tries := c.writes("create"); tries > most {
			return fmt.Errorf("%d tries, want %d at most", tries, most)
		}
		return nil
	})
	stop()
	c.ready("web-0")
	c.waitForStatus("web", "the end", complete(1))
}

// A revision that nobody can read keeps from nothing but what needs it.
func TestUnreadableRevision(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	set := c.running(newSet("web", 2, withoutClaims, partition(1)))
	c.controller.Stop()
	revision := c.waitForRevisions(1)[0]
	if err := c.client.AppsV1().ControllerRevisions(c.ns).Delete(t.Context(), revision.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.createRevision(revision.Name, revision.Labels, []byte(`{"spec":{"template":{"spec":{"containers":"none"}}}}`), 1)
	uid := c.uid("web-1")
	c.succeed()
	// The name of the revision of this very template is taken.
	c.waitForPod("web-1", notUID(uid))
	c.ready("web-1")
	now := c.waitForStatus("web", "another revision", func(now *appsv1.StatefulSet) string {
		if now.Status.UpdateRevision == set.Status.UpdateRevision || *now.Status.CollisionCount != 1 {
			return "want a collision"
		}
		return counts(2, 2, 2, 1, 1)(now)
	})
	c.deletePod("web-0")
	c.waitForEvent("web", v1.EventTypeWarning, "FailedCreate",
		"Create Pod web-0 in StatefulSet web failed error: revision "+set.Status.CurrentRevision+": decode revision data: ")
	c.stays("web-1")
	c.change("web", partition(0))
	c.waitForPod("web-0", func(pod *v1.Pod) string {
		if revisionOf(pod) != now.Status.UpdateRevision {
			return "want the update revision"
		}
		return ""
	})
}

// A number of replicas that nobody can mean is no more than that: a burst of
// pods in one reconcile, and no memory for those that are not there.
func TestManyReplicas(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newSet("web", math.MaxInt32))
	c.waitForStatus("web", "one replica", counts(1, 0, 0, 1, 1))
	c.change("web", replicas(0))
	c.waitForStatus("web", "nothing", complete(0))
}

// Nothing is created in a namespace that is being deleted, and nobody told of it.
func TestTerminatingNamespace(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 2))
	c.Terminate(c.ns)
	c.Proxy.Forget()
	c.deletePod("web-1")
	c.waitForStatus("web", "one replica", counts(1, 1, 1, 1, 1))
	c.patchPod("web-0", `{"metadata":{"labels":{"more":"labels"}}}`)
	harness.Throughout(t, aWhile, "silence after one refusal", func(ctx context.Context) error {
		events, err := c.client.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
		if err == nil && (len(events.Items) > 0 || c.writes("create") != 1) {
			err = fmt.Errorf("%d events, %d creations", len(events.Items), c.writes("create"))
		}
		return err
	})
	if status := c.controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
}

// A revision that cannot be made any more is asked for once, and keeps the
// status from nothing.
func TestTerminatingNamespaceRefusesARevision(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 2, withoutClaims))
	uids := []types.UID{c.uid("web-0"), c.uid("web-1")}
	c.Terminate(c.ns)
	c.Proxy.Forget()
	for _, tag := range []string{"2", "3"} {
		set := c.change("web", image(tag))
		c.waitForStatus("web", "the new generation", func(now *appsv1.StatefulSet) string {
			if now.Status.ObservedGeneration < set.Generation {
				return "it is not observed"
			}
			return counts(2, 2, 2, 2, 0)(now)
		})
	}
	refused := c.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Resource.Resource == "controllerrevisions" && r.Verb == "create" && r.Code == http.StatusForbidden
	})
	if len(refused) != 1 {
		t.Errorf("%d refused revisions", len(refused))
	}
	if c.uid("web-0") != uids[0] || c.uid("web-1") != uids[1] {
		t.Error("pods were replaced")
	}
	if status := c.controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
}

// The metrics of a set go with it.
func TestMetricsGoWithTheSet(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 1))
	c.metric("statefulset_controller_statefulset_max_unavailable", 1)
	c.metric("statefulset_controller_statefulset_unavailable_replicas", 0)
	c.deleteSet("web", metav1.DeletePropagationBackground)
	harness.Eventually(t, soon, "no series", func(context.Context) error {
		families, err := c.controller.Metrics.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			switch name := family.GetName(); name {
			case "statefulset_controller_statefulset_max_unavailable", "statefulset_controller_statefulset_unavailable_replicas":
				return fmt.Errorf("%s is there", name)
			}
		}
		return nil
	})
}
