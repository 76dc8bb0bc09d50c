package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance10_QuotaIsReportedAndRecoveredFrom(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.LimitPods("2")
	c.create(newReplicaSet("web", 10))
	rs := c.waitForStatus("web", "two replicas and a failure", func(s appsv1.ReplicaSetStatus) string {
		if s.Replicas != 2 {
			return "want 2 replicas"
		}
		return failed("FailedCreate")(s)
	})
	if message := rs.Status.Conditions[0].Message; !strings.Contains(message, "exceeded quota") || rs.Status.Conditions[0].LastTransitionTime.IsZero() {
		t.Errorf("condition %s", inJSON(rs.Status.Conditions))
	}
	// One, then two of which the second is refused, and then nothing more until
	// the failure has been reported.
	creations := 0
	for _, r := range c.Proxy.Requests(apiproxy.Request.Write) {
		if r.Resource.Resource == "replicasets" && r.Subresource == "status" {
			break
		}
		if r.Verb == "create" && r.Resource == podResource {
			creations++
		}
	}
	if creations < 3 || creations > 4 {
		t.Errorf("%d creations before the first report, of which two can succeed", creations)
	}
	harness.Eventually(t, soon, "an event of the refusal", func(ctx context.Context) error {
		events, _, err := c.events(ctx, "web", "FailedCreate")
		if err == nil && (len(events) == 0 || !strings.HasPrefix(events[0], "Warning replicaset-controller Error creating: pods ")) {
			err = fmt.Errorf("events %v", events)
		}
		return err
	})

	c.scale("web", 2)
	c.waitForStatus("web", "no failure with two wanted", counts(2, 0, 0))
	c.scale("web", 10)
	c.waitForStatus("web", "a failure again", failed("FailedCreate"))
	c.LimitPods("20")
	c.waitForStatus("web", "ten replicas", counts(10, 0, 0))
	c.waitForPods("web", 10)
}

func TestAcceptance17_RefusedPodsAreReportedAndRecoveredFrom(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	admission := c.client.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: c.ns},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "not today"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.ns},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        c.ns,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": c.ns}}},
		},
	}
	if _, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, soon, "the policy's effect", func(ctx context.Context) error {
		_, err := c.client.CoreV1().Pods(c.ns).Create(ctx, newPod("probe", "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("a pod is accepted")
		}
		return nil
	})

	c.create(newReplicaSet("web", 2))
	rs := c.waitForStatus("web", "a failure", failed("FailedCreate"))
	if !strings.Contains(rs.Status.Conditions[0].Message, "not today") || rs.Status.Replicas != 0 {
		t.Errorf("status %s", inJSON(rs.Status))
	}
	if err := admission.ValidatingAdmissionPolicyBindings().Delete(t.Context(), c.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitForStatus("web", "two replicas without failure", counts(2, 0, 0))
}

func TestAcceptance18_TerminatingNamespaceIsNoFailure(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 5))
	pods := c.waitForPods("web", 5)
	c.waitForStatus("web", "five replicas", counts(5, 0, 0))
	harness.Eventually(t, soon, "the events of the creations", func(ctx context.Context) error {
		_, count, err := c.events(ctx, "web", "SuccessfulCreate")
		if err == nil && count != 5 {
			err = fmt.Errorf("%d events", count)
		}
		return err
	})
	c.Terminate(c.ns)
	c.Proxy.Forget()
	c.deletePod(pods[0].Name)
	refused := func() int {
		return len(c.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Verb == "create" && r.Resource == podResource && r.Code == http.StatusForbidden
		}))
	}
	c.waitForStatus("web", "four replicas and no failure", counts(4, 0, 0))
	harness.Throughout(t, aWhile, "quiet after one or two refused creations", func(context.Context) error {
		if n := refused(); n < 1 || n > 2 {
			return fmt.Errorf("%d refused creations", n)
		}
		events := c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource.Resource == "events" })
		if len(events) > 0 {
			return fmt.Errorf("events were sent: %v", events)
		}
		return nil
	})
}

// A pod that cannot be deleted is reported like one that cannot be created, and
// the condition goes as soon as nothing is left to be done.
func TestRefusedDeletionIsReported(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 2))
	c.waitForStatus("web", "two replicas", counts(2, 0, 0))
	allow := c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Resource == podResource }, http.StatusForbidden, 0)
	c.scale("web", 1)
	rs := c.waitForStatus("web", "a failure", failed("FailedDelete"))
	if !strings.HasPrefix(rs.Status.Conditions[0].Message, "unable to delete pods: ") || rs.Status.Replicas != 2 {
		t.Errorf("status %s", inJSON(rs.Status))
	}
	harness.Eventually(t, soon, "an event of the refusal", func(ctx context.Context) error {
		events, _, err := c.events(ctx, "web", "FailedDelete")
		if err == nil && (len(events) == 0 || !strings.HasPrefix(events[0], "Warning replicaset-controller Error deleting: ")) {
			err = fmt.Errorf("events %v", events)
		}
		return err
	})
	allow()
	c.waitForStatus("web", "one replica", counts(1, 0, 0))
}

// While a ReplicaSet is being deleted its pods are not looked after, so that
// nothing says that an earlier failure is over.
func TestFailureStaysWhileTheOwnerIsDeleted(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.LimitPods("1")
	c.create(newReplicaSet("web", 2))
	c.waitForStatus("web", "a failure", func(s appsv1.ReplicaSetStatus) string {
		if s.Replicas != 1 {
			return "want 1 replica"
		}
		return failed("FailedCreate")(s)
	})
	pod := c.waitForPods("web", 1)[0]
	c.deleteReplicaSet("web", metav1.DeletePropagationForeground)
	// A pod that fails before the deletion is seen is replaced.
	c.waitForStatus("web", "deletion seen", failed("FailedCreate"))
	c.setPodStatus(pod.Name, phase(v1.PodFailed))
	c.waitForStatus("web", "no replica, but the failure", func(s appsv1.ReplicaSetStatus) string {
		if s.Replicas != 0 {
			return "want no replica"
		}
		return failed("FailedCreate")(s)
	})
}
