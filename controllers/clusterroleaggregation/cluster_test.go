package clusterroleaggregation_test

import (
	"net/http"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
)

// What aggregation does not depend on costs nothing, and what it depends on is
// written once.
func TestNothingIsWrittenWithoutNeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", bar, nil, may("hammers"))
	w.role("combined", nil, selecting(bar))
	w.rules("combined", "hammers")
	w.heard()
	w.Proxy.Forget()
	w.change("hammer", func(role *rbacv1.ClusterRole) { role.Annotations = map[string]string{"owner": "joe"} })
	w.change("combined", func(role *rbacv1.ClusterRole) { role.Labels["other"] = "label" })
	w.role("copy", bar, nil, may("hammers"))
	w.heard()
	if codes := w.patches("combined"); len(codes) != 0 {
		t.Errorf("patches answered with %v", codes)
	}
}

// A role whose selector cannot be read, which the API server refuses today,
// and one that cannot be written keep no other from its rules.
func TestARefusedRoleKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Verb == "patch" && r.Name == w.name("refused")
	}, http.StatusForbidden, 0)
	w.role("refused", nil, selecting(bar))
	w.role("combined", nil, selecting(bar))
	w.role("hammer", bar, nil, may("hammers"))
	w.rules("combined", "hammers")
	stop()
	w.rules("refused", "hammers")
}

// The selector {} selects every role.
func TestAnEmptySelectorSelectsAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", nil, nil, may("hammers"))
	w.role("saw", nil, nil, may("saws"))
	w.role("all", nil, &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}})
	w.rules("all", "hammers", "saws")
	if owners := managers(w.get("all")); !slices.Equal(owners, []string{"Apply clusterrole-aggregation-controller"}) {
		t.Errorf("rules are owned by %v", owners)
	}
}
