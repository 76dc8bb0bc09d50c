package clusterroleaggregation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// lister lists the ClusterRoles that a selector matches, in no order.
type lister interface {
	List(selector labels.Selector) ([]*rbacv1.ClusterRole, error)
}

// aggregate returns the rules of all roles that target selects, each once. The
// order is that of the selectors, then of the roles' names, then of their
// rules: another order would be another list, and be written for nothing.
//
// A selected role may be aggregated itself. Its present rules are taken; when
// they change, target is looked at again. Target itself is no source, or else
// it would keep for ever what it once had.
func aggregate(target *rbacv1.ClusterRole, roles lister) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	have := map[string]bool{}
	for i := range target.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&target.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("selector %d of the aggregation rule: %w", i, err)
		}
		sources, err := roles.List(selector)
		if err != nil {
			return nil, fmt.Errorf("list cluster roles: %w", err)
		}
		slices.SortFunc(sources, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
		for _, source := range sources {
			if source.Name == target.Name {
				continue
			}
			for _, rule := range source.Rules {
				if id := identity(rule); !have[id] {
					have[id] = true
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// identity is the same for rules that are equal in all fields. The order within
// a field matters; an empty field and none are the same.
func identity(rule rbacv1.PolicyRule) string {
	var id []byte
	for _, field := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
		for _, value := range field {
			id = strconv.AppendQuote(id, value)
		}
		id = append(id, ';')
	}
	return string(id)
}
