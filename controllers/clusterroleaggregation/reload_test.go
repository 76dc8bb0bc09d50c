package clusterroleaggregation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// watched is what a watch has seen wrong with the aggregated roles of a test.
type watched struct {
	mu     sync.Mutex
	wrongs []string
	filled map[string]bool
	last   map[string]*rbacv1.ClusterRole
}

// watch until the test ends that no aggregated role loses the rule of always,
// once it has it, and that none is written without a change.
func (w *world) watch(always string) *watched {
	w.t.Helper()
	seen := &watched{filled: map[string]bool{}, last: map[string]*rbacv1.ClusterRole{}}
	mine := metav1.ListOptions{LabelSelector: "test=" + w.label}
	harness.Follow(w.t, w.client.RbacV1().ClusterRoles(), mine, func(_ watch.EventType, role *rbacv1.ClusterRole) {
		if role.AggregationRule != nil {
			seen.note(role, always)
		}
	})
	return seen
}

func (s *watched) note(role *rbacv1.ClusterRole, always string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := allows(role, always)
	if s.filled[role.Name] && !has {
		s.wrongs = append(s.wrongs, role.Name+" has lost a rule that nobody took away")
	}
	s.filled[role.Name] = s.filled[role.Name] || has
	if last := s.last[role.Name]; last != nil && equality.Semantic.DeepEqual(last.Rules, role.Rules) {
		s.wrongs = append(s.wrongs, role.Name+" was written without a change")
	}
	s.last[role.Name] = role
}

// has tells whether a role was last seen with a rule about resource.
func (s *watched) has(name, resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[name] != nil && allows(s.last[name], resource)
}

func allows(role *rbacv1.ClusterRole, resource string) bool {
	return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, resource) })
}

// A reload at any moment changes nothing about where the cluster ends up. What
// a role has by its selectors stays all the time: a controller that looked at
// part of the roles would take it away.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const chains, changes = 10, 12
	w.role("always", labels{"to-b": "true"}, nil, may("anvils"))
	w.role("source", labels{"to-b": "true"}, nil)
	seen := w.watch("anvils")
	b, c := func(i int) string { return fmt.Sprintf("b-%d", i) }, func(i int) string { return fmt.Sprintf("c-%d", i) }
	for i := range chains {
		w.role(b(i), labels{fmt.Sprintf("to-c-%d", i): "true"}, selecting(labels{"to-b": "true"}))
		w.role(c(i), nil, selecting(labels{fmt.Sprintf("to-c-%d", i): "true"}))
	}
	stop := w.controller.Reload(rand.Uint64(), 50, 20)
	for i := range changes {
		resource := fmt.Sprintf("saws-%d", i)
		w.change("source", func(role *rbacv1.ClusterRole) { role.Rules = []rbacv1.PolicyRule{may(resource)} })
		w.rules(c(i%chains), "anvils", resource)
	}
	stop()
	last := fmt.Sprintf("saws-%d", changes-1)
	for i := range chains {
		w.rules(b(i), "anvils", last)
		w.rules(c(i), "anvils", last)
	}
	w.heard()
	for i := range chains {
		w.rules(b(i), "anvils", last)
		w.rules(c(i), "anvils", last)
	}
	harness.Eventually(t, soon, "watch", func(context.Context) error {
		for i := range chains {
			if !seen.has(w.name(b(i)), last) || !seen.has(w.name(c(i)), last) {
				return errors.New("it has not seen the end")
			}
		}
		return nil
	})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, wrong := range seen.wrongs {
		t.Error(wrong)
	}
}
