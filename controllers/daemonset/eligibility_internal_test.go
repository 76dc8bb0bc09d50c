package daemonset

import (
	"io"
	"log/slog"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func testNode(name string, changes ...func(*v1.Node)) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"color": "blue"}}}
	for _, change := range changes {
		change(node)
	}
	return node
}

func tainted(key, value string, effect v1.TaintEffect) func(*v1.Node) {
	return func(node *v1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func template(changes ...func(*v1.PodSpec)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent", UID: "u"}}
	ds.Spec.Template.Labels = map[string]string{"app": "agent"}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: ds.Spec.Template.Labels}
	for _, change := range changes {
		change(&ds.Spec.Template.Spec)
	}
	return ds
}

func required(terms ...v1.NodeSelectorTerm) func(*v1.PodSpec) {
	return func(spec *v1.PodSpec) {
		spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func expression(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func field(name string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}},
	}}
}

func TestEligibility(t *testing.T) {
	t.Parallel()
	yes, stays, no := eligibility{run: true, stay: true}, eligibility{stay: true}, eligibility{}
	tolerate := func(toleration v1.Toleration) func(*v1.PodSpec) {
		return func(spec *v1.PodSpec) { spec.Tolerations = append(spec.Tolerations, toleration) }
	}
	hostNetwork := func(spec *v1.PodSpec) { spec.HostNetwork = true }
	for _, test := range []struct {
		name    string
		ds      *appsv1.DaemonSet
		node    *v1.Node
		numeric bool
		want    eligibility
	}{
		{"nothing asked for", template(), testNode("a"), false, yes},
		{"its name", template(func(s *v1.PodSpec) { s.NodeName = "a" }), testNode("a"), false, yes},
		{"another name", template(func(s *v1.PodSpec) { s.NodeName = "b" }), testNode("a"), false, no},
		{"its label", template(func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"color": "blue"} }), testNode("a"), false, yes},
		{"another label", template(func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"color": "red"} }), testNode("a"), false, no},
		{"its field", template(required(field("a"))), testNode("a"), false, yes},
		{"another field", template(required(field("b"))), testNode("a"), false, no},
		{"one of two terms", template(required(field("b"), expression("color", "In", "blue"))), testNode("a"), false, yes},
		{"an invalid term", template(required(expression("color", "Like", "blue"))), testNode("a"), false, no},
		{"an invalid term and one that matches", template(required(expression("color", "Like"), field("a"))), testNode("a"), false, yes},
		{"no terms", template(required()), testNode("a"), false, no},
		{"label and affinity", template(func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"color": "red"} }, required(field("a"))),
			testNode("a"), false, no},

		{"NoSchedule", template(), testNode("a", tainted("x", "", v1.TaintEffectNoSchedule)), false, stays},
		{"NoExecute", template(), testNode("a", tainted("x", "", v1.TaintEffectNoExecute)), false, no},
		{"both", template(), testNode("a", tainted("x", "", v1.TaintEffectNoSchedule), tainted("y", "", v1.TaintEffectNoExecute)), false, no},
		{"PreferNoSchedule", template(), testNode("a", tainted("x", "", v1.TaintEffectPreferNoSchedule)), false, yes},
		{"tolerated", template(tolerate(v1.Toleration{Key: "x", Operator: v1.TolerationOpExists})),
			testNode("a", tainted("x", "", v1.TaintEffectNoSchedule), tainted("x", "", v1.TaintEffectNoExecute)), false, yes},
		{"tolerated for a time", template(tolerate(v1.Toleration{Key: "x", Operator: v1.TolerationOpExists, TolerationSeconds: ptr.To[int64](1)})),
			testNode("a", tainted("x", "", v1.TaintEffectNoExecute)), false, yes},
		{"another value", template(tolerate(v1.Toleration{Key: "x", Value: "1"})), testNode("a", tainted("x", "2", v1.TaintEffectNoSchedule)), false, stays},
		{"conditions of the node", template(), testNode("a",
			tainted(v1.TaintNodeNotReady, "", v1.TaintEffectNoExecute), tainted(v1.TaintNodeUnreachable, "", v1.TaintEffectNoExecute),
			tainted(v1.TaintNodeDiskPressure, "", v1.TaintEffectNoSchedule), tainted(v1.TaintNodeMemoryPressure, "", v1.TaintEffectNoSchedule),
			tainted(v1.TaintNodePIDPressure, "", v1.TaintEffectNoSchedule), tainted(v1.TaintNodeUnschedulable, "", v1.TaintEffectNoSchedule)), false, yes},
		{"a node that is new", template(), testNode("a", tainted(v1.TaintNodeNotReady, "", v1.TaintEffectNoSchedule)), false, stays},
		{"no network", template(), testNode("a", tainted(v1.TaintNodeNetworkUnavailable, "", v1.TaintEffectNoSchedule)), false, stays},
		{"no network needed", template(hostNetwork), testNode("a", tainted(v1.TaintNodeNetworkUnavailable, "", v1.TaintEffectNoSchedule)), false, yes},
		{"unschedulable, not ready", template(), testNode("a", func(n *v1.Node) {
			n.Spec.Unschedulable = true
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}
		}), false, yes},

		{"a comparison", template(tolerate(v1.Toleration{Key: "x", Operator: v1.TolerationOpGt, Value: "3"})),
			testNode("a", tainted("x", "5", v1.TaintEffectNoSchedule)), true, yes},
		{"a comparison without the gate", template(tolerate(v1.Toleration{Key: "x", Operator: v1.TolerationOpGt, Value: "3"})),
			testNode("a", tainted("x", "5", v1.TaintEffectNoSchedule)), false, stays},
	} {
		c := &daemonSetController{logger: slog.New(slog.NewTextHandler(io.Discard, nil)), numericTolerations: test.numeric}
		placement := c.placementOf(test.ds)
		if got := placement.of(test.node); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
		if got := placement.ofMaybe(nil); got != no {
			t.Errorf("%s: %+v for no node", test.name, got)
		}
	}
}

func TestTolerations(t *testing.T) {
	t.Parallel()
	limited := v1.Toleration{
		Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
	}
	other := v1.Toleration{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}
	own := []v1.Toleration{limited, other}
	want := append([]v1.Toleration{daemonTolerations[0], other}, daemonTolerations[1:]...)
	if got := withDaemonTolerations(own, false); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := withDaemonTolerations(own, true); !reflect.DeepEqual(got, append(want, networkToleration)) {
		t.Errorf("got %v on the host network", got)
	}
	if !reflect.DeepEqual(own, []v1.Toleration{limited, other}) {
		t.Errorf("the template was changed: %v", own)
	}
	again := withDaemonTolerations(withDaemonTolerations(own, true), true)
	if !reflect.DeepEqual(again, append(want, networkToleration)) {
		t.Errorf("got %v at the second time", again)
	}
}

func TestSameForPlacement(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*v1.Node)
		want   bool
	}{
		{"nothing", func(*v1.Node) {}, true},
		{"heartbeat", func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, LastHeartbeatTime: metav1.Now()}}
			n.Annotations = map[string]string{"a": "b"}
			n.Status.Allocatable = v1.ResourceList{}
			n.Spec.Unschedulable = true
		}, true},
		{"empty taints", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{} }, true},
		{"label", func(n *v1.Node) { n.Labels = map[string]string{"color": "red"} }, false},
		{"taint", tainted("x", "", v1.TaintEffectNoSchedule), false},
	} {
		if got := sameForPlacement(testNode("a"), testNode("a", test.change)); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}
