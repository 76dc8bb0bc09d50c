package daemonset_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func creation(r apiproxy.Request) bool { return r.Verb == "create" && r.Resource == podResource }

func (c *cluster) creations(code int) []apiproxy.Request {
	return c.Proxy.Requests(func(r apiproxy.Request) bool { return creation(r) && r.Code == code })
}

func TestAcceptance07_FailedPodsAreReplacedWithBackOff(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]func(*appsv1.DaemonSet){"in place": nil, "surge": {rolling("0", "1")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 1)
			harness.Follow(t, c.client.CoreV1().Pods(c.ns), metav1.ListOptions{}, func(event watch.EventType, pod *v1.Pod) {
				if event != watch.Added {
					return
				}
				failed := pod.DeepCopy()
				failed.Status.Phase = v1.PodFailed
				_, err := c.client.CoreV1().Pods(c.ns).UpdateStatus(context.Background(), failed, metav1.UpdateOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("let %s fail: %v", pod.Name, err)
				}
			})
			c.create(newDaemonSet("agent", changes...))
			deletions := func() []apiproxy.Request {
				return c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Resource == podResource })
			}
			harness.Eventually(t, soon, "four failed pods deleted", func(context.Context) error {
				if n := len(deletions()); n < 4 {
					return fmt.Errorf("%d deleted", n)
				}
				return nil
			})
			// A failed pod that is left alone for now keeps its place.
			created := len(c.creations(http.StatusCreated))
			made := deletions()
			if created > len(made)+1 {
				t.Errorf("%d pods were created, %d deleted", created, len(made))
			}
			// After one, two and four seconds. The first request may have been late.
			if waited := made[3].At.Sub(made[0].At); waited < 5*time.Second {
				t.Errorf("the fourth deletion came %s after the first, want 7s", waited)
			}
			c.waitForEvent("agent", "FailedDaemonPod",
				"Warning daemonset-controller Found failed daemon pod "+c.ns+"/"+made[0].Name+" on node "+c.node(1)+", will try to kill it")
		})
	}
}

func TestAcceptance07_SucceededPodsAreReplacedAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	c.create(newDaemonSet("agent", finalizer))
	found := c.waitForPods("agent", 1)
	for range 5 {
		before := found[1][0].Name
		c.setPodStatus(phase(v1.PodSucceeded), found[1][0])
		found = c.waitUntil("agent", "a replacement though a finalizer holds the pod", func(p pods) string {
			if len(p[1]) != 1 || p[1][0].Name == before {
				return fmt.Sprint(p.names())
			}
			return ""
		})
	}
	c.waitForEvent("agent", "SucceededDaemonPod", "Normal daemonset-controller Found succeeded daemon pod "+c.ns+"/agent-")
	// A failed one that a finalizer holds has no place either.
	c.setPodStatus(phase(v1.PodFailed), found[1][0])
	c.waitUntil("agent", "a replacement", func(p pods) string {
		if len(p[1]) != 1 || p[1][0].Name == found[1][0].Name {
			return fmt.Sprint(p.names())
		}
		return ""
	})
}

func TestAcceptance15_QuotaIsReportedAndRecoveredFrom(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	c.LimitPods("2")
	c.create(newDaemonSet("agent"))
	c.waitForStatus("agent", status{desired: 5, current: 2, updated: 2})
	c.waitForEvent("agent", "FailedCreate", "Warning daemonset-controller Error creating: pods ")
	// Two at most in a batch, and then one for each retry.
	if refused := len(c.creations(http.StatusForbidden)); refused > 20 {
		t.Errorf("%d creations were refused", refused)
	}
	c.LimitPods("20")
	c.waitForPods("agent", 1, 2, 3, 4, 5)
	c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5})
}

func TestAcceptance16_ManyNodes(t *testing.T) {
	t.Parallel()
	const nodes = 300
	c := start(t, nodes)
	s := c.follow()
	release := c.Proxy.HoldWatches(podResource)
	begin := time.Now()
	c.create(newDaemonSet("agent"))
	first := func(context.Context) error {
		if made := len(c.creations(http.StatusCreated)); made != 250 {
			return fmt.Errorf("%d created", made)
		}
		return nil
	}
	harness.Eventually(t, minutes, "the first pass", first)
	harness.Throughout(t, aWhile/2, "patience", first)
	release()
	harness.Eventually(t, minutes, "all pods", func(context.Context) error { return s.has("agent", nodes) })
	c.waitForStatus("agent", status{desired: nodes, current: nodes, updated: nodes})
	if s.created("agent") != nodes || s.mostOnNode("agent") != 1 {
		t.Errorf("%d pods were created, up to %d on a node", s.created("agent"), s.mostOnNode("agent"))
	}
	// One write for the 300 pods would be best; the status is held back for half a second.
	writes := c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource == daemonSetResource && r.Subresource == "status" })
	if took := time.Since(begin); len(writes) > 5+int(took/(500*time.Millisecond)) {
		t.Errorf("%d status writes in %s", len(writes), took)
	}
}

func TestAcceptance17_OrphanedAndMadeAgain(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	found := c.startReady(newDaemonSet("agent"), 1, 2, 3)
	c.delete("agent", metav1.DeletePropagationOrphan)
	for _, pod := range found.all() {
		c.dropOwners(pod.Name)
	}
	history, err := c.revisions(t.Context(), "agent")
	if err != nil || len(history) != 1 {
		t.Fatalf("history %v, %v", history, err)
	}
	_, err = c.client.AppsV1().ControllerRevisions(c.ns).Patch(t.Context(), history[0].Name, types.MergePatchType,
		[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.finishDeletion("agent")
	c.controller.CatchUp() // or it does not know the orphans yet
	again := c.create(newDaemonSet("agent"))
	c.waitForStatus("agent", status{3, 3, 0, 3, 3, 3})
	c.always("agent", "the same pods", same(found))
	for _, pod := range c.waitForPods("agent", 1, 2, 3).all() {
		if owner := metav1.GetControllerOf(&pod); owner == nil || owner.UID != again.UID {
			t.Errorf("owner %s", inJSON(owner))
		}
	}
	adopted, err := c.revisions(t.Context(), "agent")
	if err != nil || len(adopted) != 1 || adopted[0].UID != history[0].UID || metav1.GetControllerOf(&adopted[0]) == nil {
		t.Errorf("history %s, %v", inJSON(adopted), err)
	}
}

func TestAcceptance18_NothingIsDoneWhileItIsBeingDeleted(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	found := c.startReady(newDaemonSet("agent"), 1, 2)
	c.delete("agent", metav1.DeletePropagationForeground)
	c.waitUntilSeen() // or the pod that goes is replaced
	before := c.get("agent")
	c.Proxy.Forget()
	c.addNode(3)
	c.deletePod(found[1][0].Name)
	c.change("agent", func(ds *appsv1.DaemonSet) { metav1.SetMetaDataAnnotation(&ds.ObjectMeta, "a", "b") })
	c.controller.CatchUp()
	c.always("agent", "one pod", func(p pods) string {
		if len(p) != 1 || len(p[2]) != 1 {
			return fmt.Sprint(p.names())
		}
		return ""
	})
	if writes := append(c.Writes(podResource), c.Writes(daemonSetResource)...); len(writes) > 0 {
		t.Errorf("writes %v", writes)
	}
	if after := c.get("agent"); inJSON(after.Status) != inJSON(before.Status) {
		t.Errorf("status %s", inJSON(after.Status))
	}
}

func TestAcceptance19_TerminatingNamespaceIsNoFailure(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.create(newDaemonSet("agent"))
	found := c.waitForPods("agent", 1, 2, 3)
	c.waitForStatus("agent", status{desired: 3, current: 3, updated: 3})
	c.Terminate(c.ns)
	c.Proxy.Forget()
	c.deletePod(found[1][0].Name)
	c.waitForStatus("agent", status{desired: 3, current: 2, updated: 2})
	c.deletePod(found[2][0].Name)
	c.waitForStatus("agent", status{desired: 3, current: 1, updated: 1})
	harness.Throughout(t, aWhile, "quiet after a refused creation", func(context.Context) error {
		if n := len(c.creations(http.StatusForbidden)); n != 1 {
			return fmt.Errorf("%d refused creations", n)
		}
		return nil
	})
	for _, r := range c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource.Resource == "events" }) {
		if r.Code == http.StatusCreated {
			t.Errorf("an event was sent: %v", r)
		}
	}
	if events, _, err := c.events(t.Context(), "agent", "FailedCreate"); err != nil || len(events) > 0 {
		t.Errorf("events %v, %v", events, err)
	}
}

// A revision that cannot be made any more is asked for once, and keeps nothing
// else from being told. No pod goes for a template that no new one can have.
func TestAcceptance19_TerminatingNamespaceRefusesARevision(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.create(newDaemonSet("agent"))
	c.waitForPods("agent", 1, 2)
	c.waitForStatus("agent", status{desired: 2, current: 2, updated: 2})
	revision := c.waitForRevisions("agent", 1)[0]
	c.Terminate(c.ns)
	c.Proxy.Forget()
	if err := c.client.AppsV1().ControllerRevisions(c.ns).Delete(t.Context(), revision.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := func() int {
		return len(c.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Resource.Resource == "controllerrevisions" && r.Verb == "create" && r.Code == http.StatusForbidden
		}))
	}
	harness.Eventually(t, soon, "a refusal", func(context.Context) error {
		if refused() == 0 {
			return errors.New("none")
		}
		return nil
	})
	for _, tag := range []string{"2", "3"} {
		c.change("agent", image(tag))
		c.waitForStatus("agent", status{desired: 2, current: 2})
	}
	c.always("agent", "the pods of before", images(2, 0))
	if n := refused(); n != 1 {
		t.Errorf("%d refused revisions", n)
	}
	if status := c.controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
}

func TestAcceptance20_DeletedAndMadeAgainAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.create(newDaemonSet("agent"))
	old := c.waitForPods("agent", 1, 2, 3)
	c.delete("agent", metav1.DeletePropagationBackground)
	again := c.create(newDaemonSet("agent"))
	c.waitUntil("agent", "pods of the new one", func(p pods) string {
		for node := range old {
			own := 0
			for _, pod := range p[node] {
				if metav1.IsControlledBy(&pod, again) {
					own++
				}
			}
			if own != 1 {
				return fmt.Sprintf("%d pods on node %d", own, node)
			}
		}
		return ""
	})
	c.waitForStatus("agent", status{desired: 3, current: 3, updated: 3})
}

func TestAcceptance21_ConflictOfAStatusWrite(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.create(newDaemonSet("agent"))
	c.waitForPods("agent", 1, 2)
	c.waitForStatus("agent", status{desired: 2, current: 2, updated: 2})
	var answered atomic.Int64
	stop := c.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Resource == daemonSetResource && r.Subresource == "status" && answered.Add(1) == 1
	}, http.StatusConflict, 0)
	defer stop()
	c.Proxy.Forget()
	c.addNode(3)
	c.waitForStatus("agent", status{desired: 3, current: 3, updated: 3})
	var seen []string
	for _, r := range c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource == daemonSetResource && r.Verb != "watch" }) {
		seen = append(seen, fmt.Sprint(r.Verb, " ", r.Code))
	}
	if got := strings.Join(seen, ", "); !strings.HasPrefix(got, "update 409, get 200, update 200") {
		t.Errorf("requests: %s", got)
	}
}

// What cannot be done is told, tried a few times a minute, and keeps nothing
// else waiting.
func TestObjectsThatCannotBeHandled(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.create(newDaemonSet("agent", func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.PriorityClassName = "there-is-none"
	}))
	c.create(newDaemonSet("healthy"))
	c.waitForEvent("agent", "FailedCreate", "no PriorityClass with name there-is-none was found")
	c.waitForStatus("agent", status{desired: 2})
	c.waitForPods("healthy", 1, 2)
	harness.Throughout(t, aWhile, "few tries", func(context.Context) error {
		if refused := len(c.creations(http.StatusForbidden)); refused > 20 {
			return fmt.Errorf("%d creations were refused", refused)
		}
		return nil
	})
	// It recovers when it is changed.
	c.change("agent", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.PriorityClassName = "" })
	c.waitForPods("agent", 1, 2)

	// Pods that do not say where they belong are left alone.
	ds := c.get("agent")
	own := func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	}
	c.createPod("nowhere", "agent", 0, own)
	c.createPod("two-nodes", "agent", 1, own, func(pod *v1.Pod) {
		terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		terms[0].MatchFields = nil
		terms[0].MatchExpressions = []v1.NodeSelectorRequirement{{Key: "x", Operator: v1.NodeSelectorOpExists}}
	})
	c.controller.CatchUp()
	c.always("agent", "pods that say nothing of a node", func(p pods) string {
		if len(p[0]) != 2 || len(p[1]) != 1 || len(p[2]) != 1 {
			return fmt.Sprint(p.names())
		}
		return ""
	})
	// One that is meant for a node that does not exist is deleted.
	c.createPod("lost", "agent", 99, own)
	c.waitUntil("agent", "no pod for a node that does not exist", func(p pods) string {
		if len(p[99]) > 0 {
			return fmt.Sprint(p.names())
		}
		return ""
	})
}
