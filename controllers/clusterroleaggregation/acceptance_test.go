package clusterroleaggregation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/clusterroleaggregation"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// bar is the label that most tests select.
var bar = labels{"foo": "bar"}

// fields that a manager owns, on the first level.
func fields(entry metav1.ManagedFieldsEntry) (names []string) {
	owned := map[string]any{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
		return nil
	}
	for name := range owned {
		names = append(names, name)
	}
	return names
}

func TestAcceptance01_RulesOfSelectedRolesAreCollectedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", bar, nil, may("hammers"))
	w.role("chisel", bar, nil, may("chisels"))
	w.role("saw", labels{"foo": "x"}, nil, may("saws"))
	w.role("combined", labels{"mine": "true"}, selecting(bar))
	w.rules("combined", "chisels", "hammers")

	combined := w.get("combined")
	if got := managers(combined); !slices.Equal(got, []string{"Apply clusterrole-aggregation-controller"}) {
		t.Errorf("rules are owned by %v", got)
	}
	for _, entry := range combined.ManagedFields {
		if entry.Manager == "clusterrole-aggregation-controller" && !slices.Equal(fields(entry), []string{"f:rules"}) {
			t.Errorf("the controller owns %v", fields(entry))
		}
	}
	if combined.Labels["mine"] != "true" || len(combined.AggregationRule.ClusterRoleSelectors) != 1 {
		t.Errorf("more than the rules was changed: %+v", combined)
	}
}

func TestAcceptance02_LabelsThatComeAndGoCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", bar, nil, may("hammers"))
	w.role("chisel", bar, nil, may("chisels"))
	w.role("saw", labels{"foo": "x"}, nil, may("saws"))
	w.role("combined", nil, selecting(bar))
	w.rules("combined", "chisels", "hammers")
	w.change("saw", func(role *rbacv1.ClusterRole) { role.Labels["foo"] = "bar" })
	w.rules("combined", "chisels", "hammers", "saws")
	w.change("hammer", func(role *rbacv1.ClusterRole) { delete(role.Labels, "foo") })
	w.rules("combined", "chisels", "saws")
	w.delete("chisel")
	w.rules("combined", "saws")
}

func TestAcceptance03_EditsByHandAreReverted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", bar, nil, may("hammers"))
	w.role("combined", nil, selecting(bar))
	w.rules("combined", "hammers")
	edited := w.get("combined")
	edited.Rules = append(edited.Rules, may("nails"))
	edited, err := w.client.RbacV1().ClusterRoles().Update(t.Context(), edited, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(edited.Rules) != 2 {
		t.Fatalf("the edit came to nothing: %+v", edited.Rules)
	}
	w.rules("combined", "hammers")
}

func TestAcceptance04_SelectorsComeInTheirOrderAndRulesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", bar, nil, may("hammers"))
	w.role("both", labels{"foo": "bar", "also": "x"}, nil, may("both"))
	w.role("saw", labels{"also": "x"}, nil, may("saws"))
	w.role("copy", bar, nil, may("saws"))
	w.role("combined", nil, selecting(labels{"also": "x"}, bar))
	w.rules("combined", "both", "saws", "hammers")
}

func TestAcceptance05_ChainsConverge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("c", nil, selecting(labels{"to-c": "true"}))
	w.role("b", labels{"to-c": "true"}, selecting(labels{"to-b": "true"}))
	w.role("a", labels{"to-b": "true"}, nil, may("hammers"))
	w.rules("c", "hammers")
	w.change("a", func(role *rbacv1.ClusterRole) { role.Rules = append(role.Rules, may("saws")) })
	w.rules("b", "hammers", "saws")
	w.rules("c", "hammers", "saws")
}

func TestAcceptance06_ARoleIsNotItsOwnSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", bar, nil, may("hammers"))
	w.role("combined", bar, selecting(bar))
	w.rules("combined", "hammers")
	w.delete("hammer")
	w.rules("combined")
}

func TestAcceptance07_RulesThatNothingGivesAreTakenAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("combined", nil, selecting(bar), may("everything"))
	w.rules("combined")
	w.heard()
	if codes := w.patches("combined"); !slices.Equal(codes, []int{http.StatusOK}) {
		t.Errorf("patches answered with %v, want a single one", codes)
	}
}

// holdPatch of a role until release is called; held is closed when one has come.
func (w *world) holdPatch(short string) (held <-chan struct{}, release func()) {
	w.t.Helper()
	came, released := make(chan struct{}), make(chan struct{})
	var seen bool
	remove := w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "patch" && r.Resource == clusterRoles && r.Name == w.name(short) && !seen {
			seen = true
			close(came)
			<-released
		}
	})
	return came, func() {
		remove()
		close(released)
	}
}

func (w *world) await(what string, c <-chan struct{}) {
	w.t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		w.t.Fatalf("no %s after %s", what, soon)
	}
}

func TestAcceptance08_ADeletedRoleDoesNotComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, release := w.holdPatch("combined")
	w.role("combined", nil, selecting(bar))
	w.role("hammer", bar, nil, may("hammers"))
	w.await("patch", held)
	w.delete("combined")
	w.controller.CatchUp() // or a patch more may be tried before the deletion is seen
	release()
	w.heard()
	if err := w.gone(t.Context(), "combined"); err != nil {
		t.Error(err)
	}
	if codes := w.patches("combined"); len(codes) != 1 || codes[0] < 400 {
		t.Errorf("patches answered with %v", codes)
	}
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("a role that is gone counts as an error: %s", status.LastError)
	}
}

func TestAcceptance08_AnotherRoleOfTheNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, release := w.holdPatch("combined")
	w.role("combined", nil, selecting(bar))
	w.role("hammer", bar, nil, may("hammers"))
	w.await("patch", held)
	w.delete("combined")
	w.role("combined", nil, nil, may("nails"))
	w.controller.CatchUp() // or a patch more may be tried before the change is seen
	release()
	w.heard()
	w.rules("combined", "nails")
	if codes := w.patches("combined"); len(codes) != 1 || codes[0] < 400 {
		t.Errorf("patches answered with %v", codes)
	}
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("a role of that name counts as an error: %s", status.LastError)
	}
}

// isDefault is the label of the roles that the API server makes.
const isDefault = "kubernetes.io/bootstrapping"

// defaultWorld has a controller that sees the roles of the API server. Its tests
// are not parallel, since there is one set of them.
func defaultWorld(t *testing.T) *world {
	t.Helper()
	engine := harness.New(t, controlplane.Shared(t), harness.Options{
		Scope: apiproxy.Scope{Selected: clusterRoles, Selector: isDefault + "=rbac-defaults"},
	})
	w := &world{Engine: engine, t: t, client: engine.Admin, label: "default"}
	w.controller = engine.Start(clusterroleaggregation.Descriptor(), nil)
	return w
}

// complete returns an error unless each of the default roles has the rules of
// all roles that are meant for it, in the order that nothing changes any more.
func complete(roles []rbacv1.ClusterRole) error {
	for _, name := range []string{"admin", "edit", "view"} {
		i := slices.IndexFunc(roles, func(role rbacv1.ClusterRole) bool { return role.Name == name })
		if i < 0 {
			return fmt.Errorf("%s is not there", name)
		}
		var want []rbacv1.PolicyRule
		for _, source := range roles { // by name
			if source.Labels[rbacv1.GroupName+"/aggregate-to-"+name] != "true" || source.Name == name {
				continue
			}
			for _, rule := range source.Rules {
				equal := func(other rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(rule, other) }
				if !slices.ContainsFunc(want, equal) {
					want = append(want, rule)
				}
			}
		}
		if !equality.Semantic.DeepEqual(want, roles[i].Rules) {
			return fmt.Errorf("rules of %s (-want +got):\n%s", name, cmp.Diff(want, roles[i].Rules))
		}
	}
	return nil
}

func TestAcceptance09_ARestartWritesNothing(t *testing.T) {
	w := defaultWorld(t)
	versions := map[string]string{}
	harness.Eventually(t, soon, "rules of the default roles", func(ctx context.Context) error {
		list, err := w.client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{LabelSelector: isDefault})
		if err != nil {
			return err
		}
		for _, role := range list.Items {
			versions[role.Name] = role.ResourceVersion
		}
		return complete(list.Items)
	})
	w.settled()
	w.Proxy.Forget()
	w.controller.Restart()
	w.settled()
	if writes := w.Writes(clusterRoles); len(writes) != 0 {
		t.Errorf("writes: %+v", writes)
	}
	for name, version := range versions {
		role, err := w.client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if role.ResourceVersion != version {
			t.Errorf("%s has changed", name)
		}
	}
}

func TestAcceptance10_WhatHappenedWhileStoppedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.role("hammer", bar, nil, may("hammers"))
	w.role("saw", nil, nil, may("saws"))
	w.role("combined", nil, selecting(bar))
	w.rules("combined", "hammers")
	w.controller.Stop()
	w.change("hammer", func(role *rbacv1.ClusterRole) { delete(role.Labels, "foo") })
	w.change("saw", func(role *rbacv1.ClusterRole) { role.Labels["foo"] = "bar" })
	w.controller.Start()
	w.rules("combined", "saws")
}

func TestAcceptance10_FiftyRolesAtOnceWithAnyNumberOfWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const count = 50
	w.role("source", bar, nil, may("hammers"))
	short := func(i int) string { return fmt.Sprintf("combined-%d", i) }
	for i := range count {
		w.role(short(i), nil, selecting(bar))
	}
	for i, workers := range []int{5, 1, 8} {
		resource := fmt.Sprintf("saws-%d", i)
		w.controller.Resize(workers)
		w.change("source", func(role *rbacv1.ClusterRole) { role.Rules = []rbacv1.PolicyRule{may(resource)} })
		for i := range count {
			w.rules(short(i), resource)
		}
	}
	w.heard()
	for i := range count {
		// One for the first rules, one for each change.
		if codes := w.patches(short(i)); len(codes) > 4 {
			t.Errorf("%d patches of %s for 4 changes", len(codes), short(i))
		}
	}
}

func TestAcceptance11_TheDefaultRolesTakeNewRulesIn(t *testing.T) {
	w := defaultWorld(t)
	for _, there := range []bool{true, false} {
		if there {
			w.role("wrench", labels{isDefault: "rbac-defaults", rbacv1.GroupName + "/aggregate-to-view": "true"}, nil, may("wrenches"))
		} else {
			w.delete("wrench")
		}
		for _, name := range []string{"view", "edit", "admin"} {
			harness.Eventually(t, soon, fmt.Sprintf("change of %s, rule %t", name, there), func(ctx context.Context) error {
				role, err := w.client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				has := func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "wrenches") }
				if got := slices.ContainsFunc(role.Rules, has); got != there {
					return fmt.Errorf("rule %t", got)
				}
				return nil
			})
		}
	}
}
