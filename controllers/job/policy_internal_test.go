package job

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func exited(name string, code int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}}
}

func TestPodFailurePolicy(t *testing.T) {
	const (
		in    = batchv1.PodFailurePolicyOnExitCodesOpIn
		notIn = batchv1.PodFailurePolicyOnExitCodesOpNotIn
	)
	codes := func(
		action batchv1.PodFailurePolicyAction, op batchv1.PodFailurePolicyOnExitCodesOperator, container *string, values ...int32,
	) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: container, Operator: op, Values: values}}
	}
	has := func(action batchv1.PodFailurePolicyAction, condition v1.PodConditionType) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: condition, Status: v1.ConditionTrue}}}
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"},
		Status: v1.PodStatus{
			ContainerStatuses:     []v1.ContainerStatus{{Name: "runs"}, exited("fine", 0), exited("main", 3), exited("side", 5)},
			InitContainerStatuses: []v1.ContainerStatus{exited("init", 7)},
			Conditions: []v1.PodCondition{
				{Type: "A", Status: v1.ConditionFalse}, {Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		},
	}
	const (
		failJob = batchv1.PodFailurePolicyActionFailJob
		ignore  = batchv1.PodFailurePolicyActionIgnore
		count   = batchv1.PodFailurePolicyActionCount
	)
	for _, test := range []struct {
		name    string
		rules   []batchv1.PodFailurePolicyRule
		action  batchv1.PodFailurePolicyAction
		message string
	}{
		{"no rule", nil, "", ""},
		{"code in", []batchv1.PodFailurePolicyRule{codes(failJob, in, nil, 4, 5)}, failJob,
			"Container side for pod ns/pod failed with exit code 5 matching FailJob rule at index 0"},
		{"code not in", []batchv1.PodFailurePolicyRule{codes(count, notIn, nil, 3)}, count,
			"Container side for pod ns/pod failed with exit code 5 matching Count rule at index 0"},
		{"0 is no failure", []batchv1.PodFailurePolicyRule{codes(failJob, notIn, nil, 3, 5, 7)}, "", ""},
		{"init container", []batchv1.PodFailurePolicyRule{codes(failJob, in, nil, 7)}, failJob,
			"Container init for pod ns/pod failed with exit code 7 matching FailJob rule at index 0"},
		{"regular containers first", []batchv1.PodFailurePolicyRule{codes(failJob, in, nil, 7, 3)}, failJob,
			"Container main for pod ns/pod failed with exit code 3 matching FailJob rule at index 0"},
		{"another container", []batchv1.PodFailurePolicyRule{codes(failJob, in, ptr.To("main"), 5)}, "", ""},
		{"condition", []batchv1.PodFailurePolicyRule{has(ignore, v1.DisruptionTarget)}, ignore,
			"Pod ns/pod has condition DisruptionTarget matching Ignore rule at index 0"},
		{"condition that is false", []batchv1.PodFailurePolicyRule{has(ignore, "A")}, "", ""},
		{"the first that is met", []batchv1.PodFailurePolicyRule{codes(failJob, in, nil, 99), has(ignore, v1.DisruptionTarget), codes(failJob, in, nil, 3)},
			ignore, "Pod ns/pod has condition DisruptionTarget matching Ignore rule at index 1"},
		{"an operator of the future", []batchv1.PodFailurePolicyRule{codes(failJob, "About", nil, 3)}, "", ""},
	} {
		got := matchFailurePolicy(&batchv1.PodFailurePolicy{Rules: test.rules}, pod)
		if got.action != test.action || got.message != test.message || got.counts() != (test.action != ignore) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	if got := matchFailurePolicy(nil, pod); got != (policyMatch{}) {
		t.Errorf("without policy: %+v", got)
	}
}

func TestSuccessPolicy(t *testing.T) {
	rule := func(indexes string, count int32) batchv1.SuccessPolicyRule {
		var r batchv1.SuccessPolicyRule
		if indexes != "-" {
			r.SucceededIndexes = &indexes
		}
		if count >= 0 {
			r.SucceededCount = &count
		}
		return r
	}
	for _, test := range []struct {
		name  string
		rules []batchv1.SuccessPolicyRule
		want  int
	}{
		{"no rule", nil, -1},
		{"all of the indexes", []batchv1.SuccessPolicyRule{rule("1-3", -1)}, 0},
		{"not all", []batchv1.SuccessPolicyRule{rule("0-3", -1)}, -1},
		{"enough of the indexes", []batchv1.SuccessPolicyRule{rule("0-3", 3)}, 0},
		{"not enough of the indexes", []batchv1.SuccessPolicyRule{rule("0-2", 3)}, -1},
		{"enough in all", []batchv1.SuccessPolicyRule{rule("-", 4)}, 0},
		{"not enough in all", []batchv1.SuccessPolicyRule{rule("-", 5)}, -1},
		{"malformed and empty rules are left out", []batchv1.SuccessPolicyRule{rule("1-x", 1), rule("", 0), rule("7", 1)}, 2},
		{"a rule that asks nothing", []batchv1.SuccessPolicyRule{rule("-", -1)}, -1},
	} {
		completed, _ := parseIndexes("1-3,7", 10)
		got, met := matchSuccessPolicy(&batchv1.SuccessPolicy{Rules: test.rules}, completed, 10)
		if met != (test.want >= 0) || met && got != test.want {
			t.Errorf("%s: rule %d, %t", test.name, got, met)
		}
	}
	if _, met := matchSuccessPolicy(nil, nil, 10); met {
		t.Error("met without policy")
	}
}
