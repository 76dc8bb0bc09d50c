package job

import batchv1 "k8s.io/api/batch/v1"

// matchSuccessPolicy returns the number of the first rule that the completed
// indexes meet. A rule whose indexes are empty or malformed meets nothing.
func matchSuccessPolicy(policy *batchv1.SuccessPolicy, completed indexSet, completions int) (int, bool) {
	if policy == nil {
		return 0, false
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		if rule.SucceededIndexes == nil {
			if rule.SucceededCount != nil && completed.count() >= int(*rule.SucceededCount) {
				return i, true
			}
			continue
		}
		wanted, wellFormed := parseIndexes(*rule.SucceededIndexes, completions)
		if !wellFormed || len(wanted) == 0 {
			continue
		}
		need := wanted.count()
		if rule.SucceededCount != nil {
			need = int(*rule.SucceededCount)
		}
		if wanted.overlap(completed) >= need {
			return i, true
		}
	}
	return 0, false
}
