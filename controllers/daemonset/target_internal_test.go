package daemonset

import (
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTargetNode(t *testing.T) {
	t.Parallel()
	pod := func(node string, changes ...func(*v1.PodSpec)) *v1.Pod {
		pod := &v1.Pod{Spec: v1.PodSpec{NodeName: node}}
		for _, change := range changes {
			change(&pod.Spec)
		}
		return pod
	}
	two := field("a")
	two.MatchFields[0].Values = []string{"a", "b"}
	not := field("a")
	not.MatchFields[0].Operator = v1.NodeSelectorOpNotIn
	uid := field("a")
	uid.MatchFields[0].Key = "metadata.uid"
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"bound":                       {pod("a"), "a"},
		"bound elsewhere":             {pod("b", required(field("a"))), "b"},
		"meant for it":                {pod("", required(field("a"))), "a"},
		"by the second term":          {pod("", required(expression("x", "Exists"), field("a"))), "a"},
		"two nodes":                   {pod("", required(two)), ""},
		"not that node":               {pod("", required(not)), ""},
		"another field":               {pod("", required(uid)), ""},
		"nothing":                     {pod(""), ""},
		"no terms":                    {pod("", required()), ""},
		"affinity to pods":            {pod("", func(s *v1.PodSpec) { s.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{}} }), ""},
		"preferred node affinity":     {pod("", func(s *v1.PodSpec) { s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}} }), ""},
		"an expression instead of it": {pod("", required(expression("metadata.name", "In", "a"))), ""},
	} {
		if got := targetNode(test.pod); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestByNode(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	pod := func(name, bound string, age time.Duration, phase v1.PodPhase, deleted bool) *v1.Pod {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(begin.Add(-age))}}
		required(field("a"))(&pod.Spec)
		pod.Spec.NodeName = bound
		pod.Status.Phase = phase
		if deleted {
			pod.DeletionTimestamp = &metav1.Time{Time: begin}
		}
		return pod
	}
	nodes := byNode([]*v1.Pod{
		pod("d", "", 0, v1.PodPending, false),
		pod("e", "", 0, v1.PodPending, true),
		pod("c", "", time.Hour, v1.PodFailed, false),
		pod("b", "a", 0, v1.PodPending, false),
		pod("x", "", time.Hour, v1.PodFailed, true),
		pod("y", "", time.Hour, v1.PodSucceeded, true),
		pod("z", "b", 0, v1.PodRunning, false),
		{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}},
	})
	got := map[string]string{}
	for node, pods := range nodes {
		var names []string
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		got[node] = strings.Join(names, " ")
	}
	if want := map[string]string{"a": "b c d e", "b": "z"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	ds := func(generation string) *appsv1.DaemonSet {
		ds := template()
		ds.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: generation}
		return ds
	}
	pod := func(hash, generation string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			"controller-revision-hash": hash, "pod-template-generation": generation,
		}}}
	}
	for _, test := range []struct {
		generation, hash string
		pod              *v1.Pod
		want             bool
	}{
		{"2", "h", pod("h", "2"), true},
		{"2", "h", pod("h", "1"), true},
		{"2", "h", pod("g", "2"), true},
		{"2", "h", pod("g", "1"), false},
		{"two", "h", pod("g", "two"), false},
		{"", "h", pod("g", ""), false},
		{"", "", pod("", ""), false},
		{"2", "h", &v1.Pod{}, false},
	} {
		if got := versionOf(ds(test.generation), test.hash).isCurrent(test.pod); got != test.want {
			t.Errorf("generation %q, hash %q: %t for %v", test.generation, test.hash, got, test.pod.Labels)
		}
	}
}

func TestPodFor(t *testing.T) {
	t.Parallel()
	ds := template(required(expression("color", "In", "blue")), func(s *v1.PodSpec) {
		s.NodeSelector = map[string]string{"color": "blue"}
		s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{{Weight: 7}}
		s.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{}
	})
	before := ds.DeepCopy()
	newPod, err := podFor(ds, version{hash: "h", generation: "3"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := newPod("a"), newPod("b")
	for node, pod := range map[string]*v1.Pod{"a": a, "b": b} {
		if targetNode(pod) != node {
			t.Errorf("meant for %q, want %q", targetNode(pod), node)
		}
		affinity := pod.Spec.Affinity
		if terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; !reflect.DeepEqual(terms, []v1.NodeSelectorTerm{field(node)}) {
			t.Errorf("required %v", terms)
		}
		if affinity.PodAntiAffinity == nil || affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight != 7 ||
			pod.Spec.NodeSelector["color"] != "blue" {
			t.Errorf("spec %v", pod.Spec)
		}
		wantLabels := map[string]string{"app": "agent", "controller-revision-hash": "h", "pod-template-generation": "3"}
		if pod.GenerateName != "agent-" || !reflect.DeepEqual(pod.Labels, wantLabels) {
			t.Errorf("metadata %v", pod.ObjectMeta)
		}
	}
	if !reflect.DeepEqual(ds, before) {
		t.Error("the template was changed")
	}
	newPod, err = podFor(ds, version{hash: "h"})
	if err != nil {
		t.Fatal(err)
	}
	if _, labelled := newPod("a").Labels["pod-template-generation"]; labelled {
		t.Error("a generation that is not known is on the pod")
	}
	ds.Spec.Template.Labels = nil
	if _, err := podFor(ds, version{hash: "h"}); err == nil {
		t.Error("a template without labels was taken")
	}
}
