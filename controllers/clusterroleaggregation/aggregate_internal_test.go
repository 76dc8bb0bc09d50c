package clusterroleaggregation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// roles lists in the order given, as a cache lists in none.
type roles []*rbacv1.ClusterRole

func (r roles) List(selector labels.Selector) (matching []*rbacv1.ClusterRole, err error) {
	for _, role := range r {
		if selector.Matches(labels.Set(role.Labels)) {
			matching = append(matching, role)
		}
	}
	return matching, nil
}

func rule(verbs string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), Resources: resources}
}

func role(name, label string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"to": label}}, Rules: rules}
}

func selectors(labels ...string) *rbacv1.AggregationRule {
	rule := &rbacv1.AggregationRule{}
	for _, label := range labels {
		selector := metav1.LabelSelector{MatchLabels: map[string]string{"to": label}}
		if label == "" {
			selector.MatchLabels = nil
		}
		rule.ClusterRoleSelectors = append(rule.ClusterRoleSelectors, selector)
	}
	return rule
}

func TestAggregate(t *testing.T) {
	t.Parallel()
	get, list, both, reversed := rule("get", "pods"), rule("list", "pods"), rule("get,list", "pods"), rule("list,get", "pods")
	tests := []struct {
		name   string
		target *rbacv1.ClusterRole
		roles  roles
		want   []rbacv1.PolicyRule
	}{
		{"nothing selected", &rbacv1.ClusterRole{AggregationRule: selectors("a")}, roles{role("x", "b", get)}, nil},
		{"no selector", &rbacv1.ClusterRole{AggregationRule: selectors()}, roles{role("x", "b", get)}, nil},
		{"by name", &rbacv1.ClusterRole{AggregationRule: selectors("a")},
			roles{role("y", "a", list, both), role("x", "a", get)}, []rbacv1.PolicyRule{get, list, both}},
		{"by selector first", &rbacv1.ClusterRole{AggregationRule: selectors("b", "a")},
			roles{role("x", "a", get), role("y", "b", list)}, []rbacv1.PolicyRule{list, get}},
		{"equal rules once", &rbacv1.ClusterRole{AggregationRule: selectors("a", "")},
			roles{role("x", "a", get, get), role("y", "a", get, list)}, []rbacv1.PolicyRule{get, list}},
		{"the order of verbs matters", &rbacv1.ClusterRole{AggregationRule: selectors("a")},
			roles{role("x", "a", both, reversed)}, []rbacv1.PolicyRule{both, reversed}},
		{"not itself", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}, AggregationRule: selectors("a")},
			roles{role("x", "a", get), role("y", "a", list)}, []rbacv1.PolicyRule{list}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := aggregate(test.target, test.roles)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAggregateNamesABadSelector(t *testing.T) {
	t.Parallel()
	target := &rbacv1.ClusterRole{AggregationRule: selectors("a")}
	target.AggregationRule.ClusterRoleSelectors = append(target.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}},
	})
	if _, err := aggregate(target, roles{}); err == nil || !strings.Contains(err.Error(), "selector 1") {
		t.Errorf("got %v", err)
	}
}

// FuzzIdentity compares identities with equality of all fields.
func FuzzIdentity(f *testing.F) {
	f.Add("get|list", "", "pods", "", "", "get|list", "", "pods", "", "")
	f.Add("get", "list", "", "", "", "get|list", "", "", "", "")
	f.Add(`a";"b`, "", "", "", "", `a|b`, "", "", "", "")
	split := func(field string) []string {
		if field == "" {
			return nil
		}
		return strings.Split(field, "|")
	}
	of := func(fields [5]string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: split(fields[0]), APIGroups: split(fields[1]), Resources: split(fields[2]),
			ResourceNames: split(fields[3]), NonResourceURLs: split(fields[4])}
	}
	f.Fuzz(func(t *testing.T, a0, a1, a2, a3, a4, b0, b1, b2, b3, b4 string) {
		a, b := of([5]string{a0, a1, a2, a3, a4}), of([5]string{b0, b1, b2, b3, b4})
		if got, want := identity(a) == identity(b), equality.Semantic.DeepEqual(a, b); got != want {
			t.Error(fmt.Sprintf("identities equal %t, rules equal %t:", got, want), a, b)
		}
	})
}
