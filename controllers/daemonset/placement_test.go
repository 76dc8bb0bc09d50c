package daemonset_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_OnePodPerNode(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	c.create(newDaemonSet("agent"))
	found := c.waitForPods("agent", 1, 2, 3, 4, 5)
	wantTolerations := []v1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"},
		{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute"},
		{Key: "node.kubernetes.io/disk-pressure", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/pid-pressure", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/unschedulable", Operator: "Exists", Effect: "NoSchedule"},
	}
	for _, pod := range found.all() {
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if len(required.NodeSelectorTerms) != 1 || len(required.NodeSelectorTerms[0].MatchExpressions) > 0 ||
			len(required.NodeSelectorTerms[0].MatchFields) != 1 || required.NodeSelectorTerms[0].MatchFields[0].Key != "metadata.name" {
			t.Errorf("required node affinity %s", inJSON(required))
		}
		for _, want := range wantTolerations {
			if !slices.Contains(pod.Spec.Tolerations, want) {
				t.Errorf("no toleration %s in %s", inJSON(want), inJSON(pod.Spec.Tolerations))
			}
		}
		if len(pod.Labels["controller-revision-hash"]) == 0 || pod.Labels["pod-template-generation"] != "1" {
			t.Errorf("labels %v", pod.Labels)
		}
		owner := metav1.GetControllerOf(&pod)
		if owner == nil || owner.Kind != "DaemonSet" || owner.Name != "agent" || owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
			t.Errorf("owner %s", inJSON(owner))
		}
	}
	c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5})
	c.waitForEvent("agent", "SuccessfulCreate", "Normal daemonset-controller ")
	c.setPodStatus(ready, found.all()...)
	c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5, ready: 5, available: 5})
	c.always("agent", "the same pods", same(found))
}

func TestAcceptance02_NodesComeAndGo(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	c.create(newDaemonSet("agent"))
	c.waitForPods("agent", 1, 2, 3, 4, 5)
	c.addNode(6)
	c.waitForPods("agent", 1, 2, 3, 4, 5, 6)
	c.waitForStatus("agent", status{desired: 6, current: 6, updated: 6})
	c.deleteNode(6)
	c.waitForPods("agent", 1, 2, 3, 4, 5)
	c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5})

	// A bound pod is left to whoever collects the pods of lost nodes, but the
	// status follows at once.
	found := c.waitForPods("agent", 1, 2, 3, 4, 5)
	c.bind(&found[5][0])
	c.controller.CatchUp() // there is no order between two watches
	c.deleteNode(5)
	c.waitForStatus("agent", status{desired: 4, current: 4, updated: 4})
	c.always("agent", "the bound pod", same(found))
}

func TestAcceptance03_OnlyNodesThatMatch(t *testing.T) {
	t.Parallel()
	color := func(to string) func(*v1.Node) {
		return func(node *v1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, "color", to) }
	}
	for name, blueOnly := range map[string]func(*appsv1.DaemonSet){
		"selector": func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{"color": "blue"} },
		"affinity": func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: "color", Operator: v1.NodeSelectorOpIn, Values: []string{"blue"}}},
				}}},
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 2)
			c.create(newDaemonSet("agent", blueOnly))
			c.waitForStatus("agent", status{})
			c.waitForPods("agent")
			c.changeNode(1, color("blue"))
			c.waitForPods("agent", 1)
			c.waitForStatus("agent", status{desired: 1, current: 1, updated: 1})
			// An unbound pod goes as soon as a bound one.
			c.changeNode(1, color("green"))
			c.waitForPods("agent")
			c.waitForStatus("agent", status{})
			c.changeNode(1, color("blue"))
			found := c.waitForPods("agent", 1)
			c.bind(&found[1][0])
			c.changeNode(1, color("green"))
			c.waitForPods("agent")
			c.waitForStatus("agent", status{})
		})
	}
	t.Run("node name", func(t *testing.T) {
		t.Parallel()
		c := start(t, 2)
		c.create(newDaemonSet("agent", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeName = c.node(1) }))
		found := c.waitForPods("agent", 1)
		if pod := found[1][0]; pod.Spec.NodeName != c.node(1) {
			t.Errorf("node name %q", pod.Spec.NodeName)
		}
		c.waitForStatus("agent", status{desired: 1, current: 1, updated: 1})
		c.always("agent", "the one pod", same(found))
	})
}

func TestAcceptance04_Taints(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	c.create(newDaemonSet("agent"))
	c.create(newDaemonSet("network", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.HostNetwork = true }))
	found := c.waitForPods("agent", 1, 2, 3, 4, 5)
	c.waitForPods("network", 1, 2, 3, 4, 5)

	// NoSchedule: the pod may stay, bound or not, and the status says so at once.
	c.bind(&found[1][0])
	for _, node := range []int{1, 2} {
		c.taint(node, taint("dedicated", v1.TaintEffectNoSchedule))
		c.waitForStatus("agent", status{desired: 4, current: 4, updated: 4, misscheduled: 1})
		c.taint(node)
		c.waitForStatus("agent", status{desired: 5, current: 5, updated: 5})
	}
	if fault := same(found)(c.waitForPods("agent", 1, 2, 3, 4, 5)); fault != "" {
		t.Error(fault)
	}

	// NoExecute: it goes, and comes back.
	c.taint(1, taint("dedicated", v1.TaintEffectNoExecute))
	c.waitForPods("agent", 2, 3, 4, 5)
	c.waitForStatus("agent", status{desired: 4, current: 4, updated: 4})
	c.taint(1, taint("dedicated", v1.TaintEffectNoSchedule))
	c.taint(2, taint("node.kubernetes.io/not-ready", v1.TaintEffectNoExecute), taint("node.kubernetes.io/unschedulable", v1.TaintEffectNoSchedule),
		taint("preferred", v1.TaintEffectPreferNoSchedule))
	c.taint(3, taint("node.kubernetes.io/network-unavailable", v1.TaintEffectNoSchedule))
	c.controller.CatchUp() // there is no order between two watches
	for _, node := range []int{2, 3} {
		for _, app := range []string{"agent", "network"} {
			pods, err := c.list(t.Context(), app)
			if err != nil {
				t.Fatal(err)
			}
			c.deletePod(pods[node][0].Name)
		}
	}
	c.waitForPods("agent", 2, 4, 5)
	c.waitForPods("network", 2, 3, 4, 5)
	c.taint(1)
	c.taint(3)
	c.waitForPods("agent", 1, 2, 3, 4, 5)
	c.waitForPods("network", 1, 2, 3, 4, 5)
}

func TestAcceptance05_SecondPodOnANodeIsDeleted(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.create(newDaemonSet("agent"))
	found := c.waitForPods("agent", 1, 2)
	own := func(pod *v1.Pod) {
		pod.OwnerReferences = found[1][0].OwnerReferences
		pod.Labels = found[1][0].Labels
	}
	// Made within the same second perhaps, in which case the name decides.
	c.createPod("zz-younger", "agent", 1, own)
	c.waitUntil("agent", "the older pod alone", same(found))
	// The bound one is kept although it is younger.
	c.createPod("bound", "agent", 2, own, func(pod *v1.Pod) { pod.Spec.NodeName = c.node(2) })
	c.waitUntil("agent", "the bound pod alone", func(p pods) string {
		if len(p[2]) != 1 || p[2][0].Name != "bound" || len(p[1]) != 1 {
			return fmt.Sprint(p.names())
		}
		return ""
	})
}

func TestAcceptance06_OrphansAreAdoptedAndStraysReleased(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.createPod("orphan", "agent", 1, func(pod *v1.Pod) {
		pod.Labels = map[string]string{"app": "agent", "pod-template-generation": "1"}
	})
	c.createPod("old", "agent", 2)
	c.controller.CatchUp() // there is no order between two watches
	c.create(newDaemonSet("agent"))
	found := c.waitUntil("agent", "an adopted pod, a new one in the place of the old one", func(p pods) string {
		if len(p[1]) != 1 || p[1][0].Name != "orphan" || controllerOf(&p[1][0]) != "agent" ||
			len(p[2]) != 1 || p[2][0].Name == "old" || len(p[3]) != 1 {
			return fmt.Sprint(p.names())
		}
		return ""
	})
	c.waitForStatus("agent", status{desired: 3, current: 3, updated: 3})

	c.changePod(found[3][0].Name, func(pod *v1.Pod) { pod.Labels["app"] = "debugged" })
	again := c.waitForPods("agent", 1, 2, 3)
	if again[3][0].Name == found[3][0].Name {
		t.Error("the pod was not replaced")
	}
	released, err := c.client.CoreV1().Pods(c.ns).Get(t.Context(), found[3][0].Name, metav1.GetOptions{})
	if err != nil || len(released.OwnerReferences) > 0 {
		t.Errorf("released pod %s, %v", inJSON(released.OwnerReferences), err)
	}
}

// An orphan may be one that the garbage collector has made, of a DaemonSet whose
// deletion the cache does not show yet. Nothing is done then.
func TestOrphansOfADeletedDaemonSetAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.create(newDaemonSet("agent"))
	c.waitForPods("agent", 1, 2)
	c.waitForStatus("agent", status{desired: 2, current: 2, updated: 2})
	c.waitUntilSeen() // or the controller waits for its own last write
	release := c.Proxy.HoldWatches(daemonSetResource)
	defer release()
	c.delete("agent", metav1.DeletePropagationForeground)
	c.Proxy.Forget()
	c.createPod("orphan", "agent", 1)
	reads := func(r apiproxy.Request) bool { return r.Verb == "get" && r.Resource == daemonSetResource }
	harness.Eventually(t, soon, "a look at the live DaemonSet", func(context.Context) error {
		if len(c.Proxy.Requests(reads)) == 0 {
			return errors.New("none")
		}
		return nil
	})
	c.addNode(3)
	harness.Throughout(t, aWhile, "no write", func(context.Context) error {
		if writes := append(c.Writes(podResource), c.Writes(daemonSetResource)...); len(writes) > 0 {
			return fmt.Errorf("writes %v", writes)
		}
		return nil
	})
}
