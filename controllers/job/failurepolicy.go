package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// policyMatch is the rule of a pod failure policy that a failed pod meets.
type policyMatch struct {
	// action is empty if no rule is met; the failure counts then.
	action batchv1.PodFailurePolicyAction
	// message says what was met, for a Job that fails because of it.
	message string
}

// counts tells whether the failure is one for the limits.
func (m policyMatch) counts() bool { return m.action != batchv1.PodFailurePolicyActionIgnore }

// matchFailurePolicy returns the first rule that pod meets.
func matchFailurePolicy(policy *batchv1.PodFailurePolicy, pod *v1.Pod) policyMatch {
	if policy == nil {
		return policyMatch{}
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		met := ""
		if rule.OnExitCodes != nil {
			if container := exitedAs(rule.OnExitCodes, pod); container != nil {
				met = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v",
					container.Name, pod.Namespace, pod.Name, container.State.Terminated.ExitCode)
			}
		} else if condition := conditionOf(rule.OnPodConditions, pod); condition != "" {
			met = fmt.Sprintf("Pod %s/%s has condition %v", pod.Namespace, pod.Name, condition)
		}
		if met != "" {
			return policyMatch{
				action:  rule.Action,
				message: fmt.Sprintf("%s matching %v rule at index %d", met, rule.Action, i),
			}
		}
	}
	return policyMatch{}
}

// exitedAs returns the first container that failed with an exit code as
// required, regular containers before init containers.
func exitedAs(required *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *v1.Pod) *v1.ContainerStatus {
	for _, statuses := range [][]v1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			terminated := statuses[i].State.Terminated
			if terminated == nil || terminated.ExitCode == 0 ||
				required.ContainerName != nil && *required.ContainerName != statuses[i].Name {
				continue
			}
			listed := slices.Contains(required.Values, terminated.ExitCode)
			if required.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed ||
				required.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed {
				return &statuses[i]
			}
		}
	}
	return nil
}

// conditionOf returns the type of the pod's first condition that is in patterns.
func conditionOf(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, pod *v1.Pod) v1.PodConditionType {
	for _, condition := range pod.Status.Conditions {
		for _, pattern := range patterns {
			if condition.Type == pattern.Type && condition.Status == pattern.Status {
				return condition.Type
			}
		}
	}
	return ""
}
