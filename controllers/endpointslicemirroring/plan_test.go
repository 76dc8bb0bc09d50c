package endpointslicemirroring

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func endpointsOf(all ...v1.EndpointSubset) *v1.Endpoints {
	return &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "db", UID: "1"}, Subsets: all}
}

// mirrorsOf Endpoints, as this controller would have made them, named m0, m1, … by family and ports.
func mirrorsOf(endpoints *v1.Endpoints) []*discovery.EndpointSlice {
	p := planFor(endpoints, wantedOf(endpoints, 1000), nil)
	slices.SortFunc(p.creates, func(a, b *discovery.EndpointSlice) int {
		return strings.Compare(string(a.AddressType)+describe(a), string(b.AddressType)+describe(b))
	})
	for i, slice := range p.creates {
		slice.Name, slice.ResourceVersion = fmt.Sprint("m", i), "7"
	}
	return p.creates
}

// text of a plan, as +CREATED =UPDATED -DELETED.
func (p plan) text() string {
	var all []string
	for _, s := range p.creates {
		all = append(all, "+"+string(s.AddressType)+" "+describe(s))
	}
	for _, s := range p.updates {
		all = append(all, "="+s.Name+" "+describe(s))
	}
	for _, s := range p.deletes {
		all = append(all, "-"+s.Name)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func TestPlan(t *testing.T) {
	v4 := subset([]string{"10.0.0.1"}, nil, 80)
	both := subset([]string{"10.0.0.1", "fd00::1"}, nil, 80)
	labelled := endpointsOf(v4)
	labelled.Labels = map[string]string{"a": "b"}
	otherUID := endpointsOf(v4)
	otherUID.UID = "2"
	for _, test := range []struct {
		name     string
		to       *v1.Endpoints
		existing []*discovery.EndpointSlice
		want     string
	}{
		{"new", endpointsOf(both), nil, "+IPv4 80: [10.0.0.1]R; +IPv6 80: [fd00::1]R"},
		{"the same", endpointsOf(both), mirrorsOf(endpointsOf(both)), ""},
		{"nothing left", endpointsOf(), mirrorsOf(endpointsOf(both)), "-m0; -m1"},
		{"one family less", endpointsOf(v4), mirrorsOf(endpointsOf(both)), "-m1"},
		{"another address", endpointsOf(subset([]string{"10.0.0.2"}, nil, 80)), mirrorsOf(endpointsOf(v4)), "=m0 80: [10.0.0.2]R"},
		{"not ready", endpointsOf(subset(nil, []string{"10.0.0.1"}, 80)), mirrorsOf(endpointsOf(v4)), "=m0 80: [10.0.0.1]"},
		{"another port", endpointsOf(subset([]string{"10.0.0.1"}, nil, 90)), mirrorsOf(endpointsOf(v4)), "=m0 90: [10.0.0.1]R"},
		{"one goes and two come", endpointsOf(subset([]string{"10.0.0.1", "fd00::1"}, nil, 90)),
			mirrorsOf(endpointsOf(subset([]string{"fd00::1"}, nil, 80))), "+IPv4 90: [10.0.0.1]R; =m0 90: [fd00::1]R"},
		{"two go and one comes", endpointsOf(subset([]string{"10.0.0.1"}, nil, 90)), mirrorsOf(endpointsOf(both)), "-m1; =m0 90: [10.0.0.1]R"},
		{"a duplicate", endpointsOf(v4), append(mirrorsOf(endpointsOf(v4)), func() *discovery.EndpointSlice {
			s := mirrorsOf(endpointsOf(v4))[0]
			s.Name = "twin"
			return s
		}()), "-twin"},
		{"an endpoint listed twice", endpointsOf(v4), func() []*discovery.EndpointSlice {
			s := mirrorsOf(endpointsOf(v4))
			s[0].Endpoints = append(s[0].Endpoints, s[0].Endpoints[0])
			return s
		}(), "=m0 80: [10.0.0.1]R"},
		{"labels", labelled, mirrorsOf(endpointsOf(v4)), "=m0 80: [10.0.0.1]R"},
		{"another owner", otherUID, mirrorsOf(endpointsOf(v4)), "=m0 80: [10.0.0.1]R"},
		{"no owner", endpointsOf(v4), func() []*discovery.EndpointSlice {
			s := mirrorsOf(endpointsOf(v4))
			s[0].OwnerReferences = nil
			return s
		}(), "=m0 80: [10.0.0.1]R"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := planFor(test.to, wantedOf(test.to, 1000), test.existing)
			if got := p.text(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			for _, s := range p.updates {
				if s.ResourceVersion != "7" { // somebody may have taken it since
					t.Errorf("%s is overwritten whatever it is", s.Name)
				}
			}
		})
	}
}

func TestWantedCountsWhatIsLeftOut(t *testing.T) {
	many := func(prefix string, count int) (all []string) {
		for i := range count {
			all = append(all, fmt.Sprintf("%s%d", prefix, 1000+i))
		}
		return all
	}
	for _, test := range []struct {
		name             string
		subsets          []v1.EndpointSubset
		most             int
		invalid, surplus int
		accepted         int
	}{
		{"all", []v1.EndpointSubset{subset([]string{"10.0.0.1"}, []string{"10.0.0.2"}, 80)}, 2, 0, 0, 2},
		{"ready first", []v1.EndpointSubset{subset([]string{"10.0.0.1"}, []string{"10.0.0.2"}, 80)}, 1, 0, 1, 1},
		{"invalid ones", []v1.EndpointSubset{subset([]string{"x", "10.0.0.1"}, []string{"y"}, 80)}, 5, 2, 0, 1},
		{"invalid ones use up nothing", []v1.EndpointSubset{subset([]string{"0x", "10.0.0.1", "10.0.0.2"}, nil, 80)}, 2, 1, 0, 2},
		{"by subset", []v1.EndpointSubset{subset([]string{"10.0.0.1", "10.0.0.2"}, nil, 80), subset([]string{"10.0.0.3"}, nil, 90)}, 1, 0, 1, 2},
		{"merged subsets share", []v1.EndpointSubset{subset([]string{"10.0.0.1"}, nil, 80), subset([]string{"10.0.0.2"}, nil, 80)}, 1, 0, 1, 1},
		{"families together", []v1.EndpointSubset{subset(many("fd00::", 600), nil, 80),
			subset([]string{"10.0.0.1", "10.0.0.2"}, nil, 80)}, 601, 0, 1, 601},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := wantedOf(endpointsOf(test.subsets...), test.most)
			accepted := 0
			for _, c := range w.groups {
				accepted += c.endpoints.Len()
			}
			if w.invalid != test.invalid || w.surplus != test.surplus || accepted != test.accepted {
				t.Errorf("%d invalid, %d surplus, %d accepted", w.invalid, w.surplus, accepted)
			}
		})
	}
}
