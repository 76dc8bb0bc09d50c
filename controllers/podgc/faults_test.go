package podgc_test

import (
	"fmt"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/podgc"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
)

// answered counts the answers to requests of a verb for a pod.
func (w *world) answered(verb, name string, code int) int {
	return len(w.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Verb == verb && r.Resource == pods.GroupResource() && r.Name == name && r.Code == code
	}))
}

// A StatefulSet makes its pods again under their names.
func TestANamesakeOfADeletedPodLives(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	made := w.apart(in(v1.PodFailed), in(v1.PodSucceeded))
	name := made[0].Name
	w.pass()
	// The cache shows two finished pods, of which the older one is replaced.
	release := w.Proxy.HoldWatches(pods.GroupResource())
	defer release()
	w.deletePod(name, 0)
	successor := w.pod(name, in(v1.PodRunning))
	w.controller.ApplyLive(section(1))
	w.nextPass()
	if got := w.answered("delete", name, http.StatusConflict); got != 1 {
		t.Errorf("%d deletions with the UID of the former pod, want 1", got)
	}
	release()
	w.pass()
	w.untouched(successor, made[1])
	if got := w.counted(errorsTotal, "terminated"); got != 0 {
		t.Errorf("%g errors counted, although somebody else was just faster", got)
	}
}

// A pod that has no outcome yet gets one first, by a patch.
func TestANamesakeOfAnOrphanLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	former := w.pod("p", w.on("gone"), in(v1.PodRunning))
	w.controller = w.Start(podgc.Descriptor(), section(0))
	w.pass() // begins the quarantine of the node
	release := w.Proxy.HoldWatches(pods.GroupResource())
	defer release()
	w.deletePod("p", 0)
	successor := w.pod("p", in(v1.PodRunning))
	if former.UID == successor.UID {
		t.Fatal("it is the same pod")
	}
	refused := func() int { return w.answered("patch", "p", http.StatusUnprocessableEntity) }
	for passes := 0; passes < 10 && refused() == 0; passes++ {
		w.nextPass()
	}
	if refused() == 0 {
		t.Error("no patch with the UID of the former pod")
	}
	release()
	w.pass()
	w.untouched(successor)
	if got := w.counted(errorsTotal, "orphaned"); got != 0 {
		t.Errorf("%g errors counted, although somebody else was just faster", got)
	}
}

func TestAPodWhoseStatusCannotBeWrittenIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod("refused", w.on("gone"), in(v1.PodRunning))
	w.pod("other", w.on("gone"), in(v1.PodRunning))
	allow := w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Verb == "patch" && r.Subresource == "status" && r.Name == "refused"
	}, http.StatusForbidden, 0)
	w.controller = w.Start(podgc.Descriptor(), section(0))
	w.passUntil("deletion of the other one", w.gone("other"))
	w.passUntil("second attempt", func() error {
		if got := w.answered("patch", "refused", http.StatusForbidden); got < 2 {
			return fmt.Errorf("%d attempts", got)
		}
		return nil
	})
	if deletes := w.answered("delete", "refused", http.StatusOK); deletes > 0 || w.get("refused") == nil {
		t.Error("it was deleted without an outcome")
	}
	if got := w.counted(errorsTotal, "orphaned"); got < 2 {
		t.Errorf("%g errors counted, want one for each attempt", got)
	}
	allow()
	w.passUntil("deletion", w.gone("refused"))
}

func TestNothingIsDeletedWhileTheNodeCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	// The second one is no API server's: it lacks a status that names the node.
	for _, code := range []int{http.StatusInternalServerError, http.StatusNotFound} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.pod("p", w.on("n"), in(v1.PodRunning))
			isGet := func(r apiproxy.Request) bool { return r.Verb == "get" && r.Resource == nodes.GroupResource() }
			allow := w.Proxy.Answer(isGet, code, 0)
			w.controller = w.Start(podgc.Descriptor(), section(0))
			w.passUntil("attempts", func() error {
				if gets := w.Proxy.Requests(isGet); len(gets) < 2 {
					return fmt.Errorf("%d", len(gets))
				}
				return nil
			})
			w.untouched(pod)
			allow()
			w.passUntil("deletion", w.gone("p"))
		})
	}
}

func TestACacheThatLacksNodesDeletesNothing(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	pod := w.pod("p", w.on("n"), in(v1.PodRunning))
	w.controller.CatchUp()
	release := w.Proxy.HoldWatches(nodes.GroupResource())
	w.node("n", v1.ConditionTrue)
	gets := func() []apiproxy.Request {
		return w.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Verb == "get" && r.Resource == nodes.GroupResource() && r.Code == http.StatusOK
		})
	}
	for pass := 0; pass < 10 && len(gets()) == 0; pass++ {
		w.nextPass()
	}
	if len(gets()) == 0 {
		t.Error("the node was not looked up")
	}
	w.untouched(pod)
	release()
	w.pass()
	w.untouched(pod)
}

// The pods of a node that is back still run until its kubelet has ended them.
func TestACacheThatShowsANodeOutOfServiceDeletesNothing(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	w.node("n", v1.ConditionFalse)
	w.taint("n", v1.TaintEffectNoExecute)
	w.pod("p", w.on("n"), in(v1.PodRunning))
	w.pass()
	w.deletePod("p", 300)
	pod := w.get("p")
	w.controller.CatchUp()
	release := w.Proxy.HoldWatches(nodes.GroupResource())
	defer release()
	node, err := w.Admin.CoreV1().Nodes().Get(t.Context(), w.nodeName("n"), metav1.GetOptions{})
	if err == nil {
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		_, err = w.Admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Proxy.Forget()
	w.nextPass()
	gets := w.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "get" && r.Resource == nodes.GroupResource() })
	if len(gets) != 1 {
		t.Errorf("the node was looked up %d times, want once", len(gets))
	}
	w.untouched(pod)
	release()
	w.pass()
	w.untouched(pod)
}

func TestAPodThatQualifiesTwiceIsDeletedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("down", v1.ConditionFalse)
	w.taint("down", v1.TaintEffectNoExecute)
	w.pod("p", w.on("down"), in(v1.PodRunning))
	w.deletePod("p", 300)
	pod := w.get("p")
	pod.Status.Phase = v1.PodFailed
	if _, err := w.Admin.CoreV1().Pods(w.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	newer := w.pod("q", in(v1.PodSucceeded))
	w.controller = w.Start(podgc.Descriptor(), section(1))
	w.passUntil("deletion", w.gone("p"))
	w.pass()
	if ok, late := w.answered("delete", "p", http.StatusOK), w.answered("delete", "p", http.StatusNotFound); ok != 1 || late != 0 {
		t.Errorf("deleted %d times, and %d times in vain", ok, late)
	}
	w.untouched(newer)
}
