package clusterroleaggregation_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/wheelhouse-project/wheelhouse/controllers/clusterroleaggregation"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

// soon is ample on a busy machine.
const soon = 2 * time.Minute

var clusterRoles = rbacv1.SchemeGroupVersion.WithResource("clusterroles").GroupResource()

// world is an engine whose controller sees the ClusterRoles of one test only.
type world struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	client     kubernetes.Interface
	label      string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	label := rand.String(8)
	engine := harness.New(t, controlplane.Shared(t), harness.Options{
		Scope: apiproxy.Scope{Selected: clusterRoles, Selector: "test=" + label},
	})
	w := &world{Engine: engine, t: t, client: engine.Admin, label: label}
	w.controller = engine.Start(clusterroleaggregation.Descriptor(), nil)
	return w
}

// name of a role, which has no namespace that would keep tests apart.
func (w *world) name(short string) string { return w.label + "-" + short }

// may is a rule that allows everything with a resource.
func may(resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"tools.example.com"}, Resources: []string{resource}}
}

type labels = map[string]string

// selecting is an aggregation rule with a selector for each set of labels.
func selecting(sets ...labels) *rbacv1.AggregationRule {
	rule := &rbacv1.AggregationRule{}
	for _, set := range sets {
		rule.ClusterRoleSelectors = append(rule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: set})
	}
	return rule
}

func (w *world) role(short string, set labels, rule *rbacv1.AggregationRule, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	w.t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta:      metav1.ObjectMeta{Name: w.name(short), Labels: labels{"test": w.label}},
		AggregationRule: rule,
		Rules:           rules,
	}
	for key, value := range set {
		role.Labels[key] = value
	}
	created, err := w.client.RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

func (w *world) get(short string) *rbacv1.ClusterRole {
	w.t.Helper()
	role, err := w.client.RbacV1().ClusterRoles().Get(w.t.Context(), w.name(short), metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return role
}

func (w *world) change(short string, change func(*rbacv1.ClusterRole)) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		role, err := w.client.RbacV1().ClusterRoles().Get(w.t.Context(), w.name(short), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(role)
		_, err = w.client.RbacV1().ClusterRoles().Update(w.t.Context(), role, metav1.UpdateOptions{FieldManager: "test"})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(short string) {
	w.t.Helper()
	if err := w.client.RbacV1().ClusterRoles().Delete(w.t.Context(), w.name(short), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// rules waits until a role has exactly those that allow resources, in their order.
func (w *world) rules(short string, resources ...string) {
	w.t.Helper()
	var want []rbacv1.PolicyRule
	for _, resource := range resources {
		want = append(want, may(resource))
	}
	harness.Eventually(w.t, soon, fmt.Sprintf("rules %v of %s", resources, short), func(ctx context.Context) error {
		role, err := w.client.RbacV1().ClusterRoles().Get(ctx, w.name(short), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(role.Rules) == 0 && len(want) == 0 {
			return nil
		}
		if diff := cmp.Diff(want, role.Rules); diff != "" {
			return fmt.Errorf("rules (-want +got):\n%s", diff)
		}
		return nil
	})
}

// settled waits until all keys are done that the controller knows.
func (w *world) settled() {
	w.t.Helper()
	harness.Eventually(w.t, soon, "idle controller", func(context.Context) error {
		if status := w.controller.Work(); status.Depth+status.Busy > 0 {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
}

// heard returns when the controller has handled all events of earlier changes,
// since those of one resource come in order: it fills a new role.
func (w *world) heard() {
	w.t.Helper()
	probe := "probe-" + rand.String(5)
	w.role(probe+"-source", labels{probe: "true"}, nil, may(probe))
	w.role(probe, nil, selecting(labels{probe: "true"}))
	w.rules(probe, probe)
	w.settled()
}

// patches of a role, by the code of their answers.
func (w *world) patches(short string) (codes []int) {
	for _, r := range w.Writes(clusterRoles) {
		if r.Name != w.name(short) {
			continue
		}
		if r.Verb != "patch" {
			w.t.Errorf("unexpected write: %+v", r)
		}
		codes = append(codes, r.Code)
	}
	return codes
}

// gone tells whether no role of the name is there.
func (w *world) gone(ctx context.Context, short string) error {
	_, err := w.client.RbacV1().ClusterRoles().Get(ctx, w.name(short), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("it is there: %w", err)
}

// managers of a role's rules.
func managers(role *rbacv1.ClusterRole) (found []string) {
	for _, entry := range role.ManagedFields {
		if slices.Contains(fields(entry), "f:rules") {
			found = append(found, fmt.Sprintf("%s %s", entry.Operation, entry.Manager))
		}
	}
	return found
}
