package endpointslice

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
)

func node(zone, cpu string, ready v1.ConditionStatus, labels ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	if zone != "" {
		n.Labels[v1.LabelTopologyZone] = zone
	}
	for _, label := range labels {
		n.Labels[label] = ""
	}
	if cpu != "" {
		n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
	return n
}

func TestSharesOf(t *testing.T) {
	const yes, no = v1.ConditionTrue, v1.ConditionFalse
	for _, test := range []struct {
		name  string
		nodes []*v1.Node
		want  map[string]int64
	}{
		{"none", nil, nil},
		{"two zones", []*v1.Node{node("a", "4", yes), node("b", "500m", yes), node("a", "2", yes)}, map[string]int64{"a": 6000, "b": 500}},
		{"not ready", []*v1.Node{node("a", "4", yes), node("b", "4", no)}, map[string]int64{"a": 4000}},
		{"no zone", []*v1.Node{node("a", "4", yes), node("", "4", yes)}, nil},
		{"no CPU", []*v1.Node{node("a", "4", yes), node("b", "", yes)}, nil},
		{"no zone, but not ready", []*v1.Node{node("a", "4", yes), node("", "4", no)}, map[string]int64{"a": 4000}},
		{"control planes", []*v1.Node{
			node("a", "4", yes), node("b", "4", yes, "node-role.kubernetes.io/control-plane"), node("", "", yes, "node-role.kubernetes.io/master"),
		}, map[string]int64{"a": 4000}},
	} {
		if got := sharesOf(test.nodes); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestWantsHints(t *testing.T) {
	for _, test := range []struct {
		hints, mode string
		want        bool
	}{
		{"", "", false}, {"", "Auto", true}, {"", "auto", true}, {"", "Disabled", false},
		{"Auto", "", true}, {"Disabled", "Auto", false}, {"auto", "Disabled", true},
	} {
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		if test.hints != "" {
			s.Annotations[v1.DeprecatedAnnotationTopologyAwareHints] = test.hints
		}
		if test.mode != "" {
			s.Annotations[v1.AnnotationTopologyMode] = test.mode
		}
		if got := wantsHints(s); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

func TestTotalOf(t *testing.T) {
	slice := func(family discovery.AddressType, port int32, endpoints int) *discovery.EndpointSlice {
		s := &discovery.EndpointSlice{AddressType: family, Endpoints: make([]discovery.Endpoint, endpoints)}
		if port > 0 {
			s.Ports = []discovery.EndpointPort{{Port: ptr.To(port)}}
		}
		return s
	}
	const v4, v6 = discovery.AddressTypeIPv4, discovery.AddressTypeIPv6
	for _, test := range []struct {
		name   string
		slices []*discovery.EndpointSlice
		want   ownslices.Total
	}{
		{"none", nil, ownslices.Total{}},
		{"placeholders", []*discovery.EndpointSlice{slice(v4, 0, 0), slice(v6, 0, 0)}, ownslices.Total{Slices: 2, Desired: 2}},
		{"half full", []*discovery.EndpointSlice{slice(v4, 80, 5), slice(v4, 80, 5)}, ownslices.Total{Endpoints: 10, Slices: 2, Desired: 1}},
		{"full", []*discovery.EndpointSlice{slice(v4, 80, 10), slice(v4, 80, 1)}, ownslices.Total{Endpoints: 11, Slices: 2, Desired: 2}},
		{"ports", []*discovery.EndpointSlice{slice(v4, 80, 1), slice(v4, 90, 1)}, ownslices.Total{Endpoints: 2, Slices: 2, Desired: 2}},
		{"families", []*discovery.EndpointSlice{slice(v4, 80, 1), slice(v6, 80, 1)}, ownslices.Total{Endpoints: 2, Slices: 2, Desired: 2}},
		{"one family without pods", []*discovery.EndpointSlice{slice(v4, 80, 1), slice(v6, 0, 0)}, ownslices.Total{Endpoints: 1, Slices: 2, Desired: 2}},
	} {
		byName := map[string]*discovery.EndpointSlice{}
		for i, s := range test.slices {
			byName[string(rune('a'+i))] = s
		}
		if got := totalOf(byName, 10); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
