package job_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance08_PodsHaveTheirIndex(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", indexed(3, 3)))
	pods := c.waitForPods("work", 3)
	for i := range pods {
		pod, index := &pods[i], fmt.Sprint(i)
		env := pod.Spec.Containers[0].Env
		if pod.GenerateName != "work-"+index+"-" || pod.Spec.Hostname != "work-"+index || indexOf(pod) != index ||
			pod.Labels[batchv1.JobCompletionIndexAnnotation] != index || len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" ||
			env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" {
			t.Errorf("pod %s", inJSON(pod))
		}
	}
	c.succeed(pods[0], pods[2])
	c.waitFor("work", "two indexes", counts(1, 2, 0), indexes("0,2", ""), unfinished)
	at := time.Now().Truncate(time.Second)
	c.deletePod(pods[1].Name)
	next, after := c.since(at, "work", pods...)
	if after < 10*time.Second || indexOf(&next) != "1" {
		t.Errorf("index %s was replaced after %s", indexOf(&next), after)
	}
	c.waitFor("work", "a failure", counts(1, 2, 1))
	c.succeed(next)
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 3, 1), indexes("0-2", ""))
	c.released("work")
}

func TestAcceptance09_SurplusPodsOfIndexesAreRemoved(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	j := c.create(newJob("work", indexed(3, 3)))
	own := c.waitForPods("work", 3)
	j = c.get(j.Name)
	at := func(index string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: index} }
	}
	c.bind(own...)
	for _, pod := range own {
		c.setPodStatus(pod.Name, running)
	}
	c.createPod(newPod("twin", j, at("0")))
	c.createPod(newPod("beyond", j, at("7")))
	c.createPod(newPod("malformed", j, at("-1")))
	c.createPod(newPod("without", j))
	harness.Eventually(t, soon, "removal", func(ctx context.Context) error {
		pods, err := c.list(ctx, "work")
		if err == nil && len(pods) != 3 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
	for i, pod := range c.waitForPods("work", 3) {
		if pod.Name != own[i].Name {
			t.Errorf("%s is left, want %s", pod.Name, own[i].Name)
		}
	}
	c.waitFor("work", "its own pods", counts(3, 0, 0), terminating(0))
}

func TestAcceptance10_AnIndexedJobIsElastic(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", indexed(3, 3)))
	c.succeed(c.waitForPods("work", 3)[2])
	c.waitFor("work", "an index", counts(2, 1, 0), indexes("2", ""))
	c.change("work", size(2, 2))
	c.waitFor("work", "no index", counts(2, 0, 0), indexes("", ""))
	c.change("work", size(3, 3))
	if again := c.waitForPods("work", 3)[2]; indexOf(&again) != "2" {
		t.Errorf("index %s runs", indexOf(&again))
	}
	c.waitFor("work", "three pods", counts(3, 0, 0))
	c.change("work", size(0, 0))
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 0, 0))
	c.released("work")
}

func TestAcceptance11_IndexesHaveALimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	maxFailed := func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = ptr.To[int32](0) }
	c.create(newJob("work", indexed(2, 2), perIndex(1)))
	c.create(newJob("most", indexed(3, 3), perIndex(0), maxFailed))
	c.create(newJob("gone", indexed(2, 2), perIndex(1), func(j *batchv1.Job) {
		replacement(batchv1.TerminatingOrFailed)(j)
	}))
	pods, gone := c.waitForPods("work", 2), c.waitForPods("gone", 2)
	at := time.Now().Truncate(time.Second).Add(-6 * time.Second)
	c.fail(pods[0], at)
	// Failed and deleted at once: it is kept until its count has been handed on.
	c.fail(gone[0], at)
	c.deletePod(gone[0].Name)
	c.fail(c.waitForPods("most", 3)[1], time.Now())
	c.waitFor("most", "failure", ended(batchv1.JobFailed, "MaxFailedIndexesExceeded"), counts(0, 0, 3), indexes("", "1"))

	for app, old := range map[string][]v1.Pod{"work": pods, "gone": gone} {
		next, after := c.since(at, app, old...)
		if after < 10*time.Second || indexOf(&next) != "0" ||
			next.Annotations[batchv1.JobIndexFailureCountAnnotation] != "1" {
			t.Errorf("%s: after %s, annotations %v", app, after, next.Annotations)
		}
		c.fail(next, time.Now())
		c.waitFor(app, "a failed index", counts(1, 0, 2), indexes("", "0"), unfinished)
		c.succeed(old[1])
		c.waitFor(app, "failure", ended(batchv1.JobFailed, "FailedIndexes"), counts(0, 1, 2), indexes("1", "0"))
		c.released(app)
	}
	c.waitForMetric("job_finished_indexes_total", map[string]string{"status": "failed", "backoffLimit": "perIndex"}, 3)
	c.waitForMetric("job_finished_indexes_total", map[string]string{"status": "succeeded", "backoffLimit": "perIndex"}, 2)
}

func TestAcceptance12_ThePodFailurePolicyDecides(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	exit := func(action batchv1.PodFailurePolicyAction, codes ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: codes}}
	}
	rules := func(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
	}
	disruption := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}}
	c.create(newJob("fail", size(2, 2), rules(exit(batchv1.PodFailurePolicyActionFailJob, 42))))
	c.create(newJob("ignore", backoffLimit(0), rules(disruption)))
	c.create(newJob("index", indexed(2, 2), perIndex(3), rules(exit(batchv1.PodFailurePolicyActionFailIndex, 42))))
	c.create(newJob("first", rules(exit(batchv1.PodFailurePolicyActionCount, 42), exit(batchv1.PodFailurePolicyActionFailJob, 42))))

	pod := c.waitForPods("fail", 2)[0]
	c.setPodStatus(pod.Name, finished(v1.PodFailed, 42, time.Now()))
	c.waitFor("fail", "failure", ended(batchv1.JobFailed, "PodFailurePolicy"), counts(0, 0, 2), condition(batchv1.JobFailed,
		v1.ConditionTrue, "PodFailurePolicy",
		fmt.Sprintf("Container c for pod %s/%s failed with exit code 42 matching FailJob rule at index 0", c.ns, pod.Name)))

	pod = c.waitForPods("ignore", 1)[0]
	at := time.Now().Truncate(time.Second).Add(-6 * time.Second)
	c.setPodStatus(pod.Name, finished(v1.PodFailed, 137, at), func(pod *v1.Pod) {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
	})
	if _, after := c.since(at, "ignore", pod); after < 10*time.Second {
		t.Errorf("replaced after %s", after)
	}
	c.waitFor("ignore", "no failure", counts(1, 0, 0), unfinished)

	c.setPodStatus(c.waitForPods("index", 2)[1].Name, finished(v1.PodFailed, 42, time.Now()))
	c.waitFor("index", "a failed index", counts(1, 0, 1), indexes("", "1"), unfinished)

	c.setPodStatus(c.waitForPods("first", 1)[0].Name, finished(v1.PodFailed, 42, time.Now()))
	c.waitFor("first", "a failure that counts", failures(1), unfinished)
	for _, action := range []string{"FailJob", "Ignore", "FailIndex", "Count"} {
		c.waitForMetric("pod_failures_handled_by_failure_policy_total", map[string]string{"action": action}, 1)
	}
}

func TestAcceptance13_TheSuccessPolicyDecides(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", indexed(5, 5), graceful, func(j *batchv1.Job) {
		j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
			{SucceededIndexes: ptr.To("0-1"), SucceededCount: ptr.To[int32](1)}}}
		j.Spec.BackoffLimit = ptr.To[int32](0)
	}))
	pods := c.waitForPods("work", 5)
	c.bind(pods[3:]...)
	c.succeed(pods[1])
	j := c.waitFor("work", "the announcement", counts(0, 1, 0), indexes("1", ""), terminating(2),
		condition(batchv1.JobSuccessCriteriaMet, v1.ConditionTrue, "SuccessPolicy", "Matched rules at index 0"))
	if len(j.Status.Conditions) != 1 {
		t.Errorf("conditions %s", inJSON(j.Status.Conditions))
	}
	c.end(pods[3].Name)
	c.end(pods[4].Name)
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "SuccessPolicy"), counts(0, 1, 0), indexes("1", ""))
	c.released("work")
}

func TestAcceptance14_ReplacementWaitsForTheEndIfAsked(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("patient", size(4, 2), graceful, replacement(batchv1.Failed)))
	c.create(newJob("eager", size(4, 2), graceful, replacement(batchv1.TerminatingOrFailed)))
	patient, eager := c.waitForPods("patient", 2), c.waitForPods("eager", 2)
	deleted := time.Now().Truncate(time.Second)
	for _, pods := range [][]v1.Pod{patient, eager} {
		c.bind(pods...)
		for _, pod := range pods {
			c.deletePod(pod.Name)
		}
	}
	c.waitFor("eager", "two failures", failures(2), terminating(2))
	c.waitFor("patient", "termination", counts(0, 0, 0), terminating(2))
	harness.Throughout(t, aWhile, "patience", func(context.Context) error {
		if fault := counts(0, 0, 0)(c.get("patient").Status); fault != "" {
			return fmt.Errorf("%s", fault)
		}
		return nil
	})
	// Long enough ago that the test goes on soon.
	at := time.Now().Truncate(time.Second).Add(-5 * time.Second)
	for _, pod := range patient {
		c.fail(pod, at)
	}
	c.waitFor("patient", "two failures", failures(2), terminating(0))
	if _, after := c.since(at, "patient", patient...); after < 20*time.Second {
		t.Errorf("patient: replaced after %s", after)
	}
	c.waitFor("patient", "replacement", counts(2, 0, 2))
	if _, after := c.since(deleted, "eager", eager...); after < 20*time.Second {
		t.Errorf("eager: replaced after %s", after)
	}
	c.waitFor("eager", "replacement", counts(2, 0, 2))
	for reason, pods := range map[string]float64{"new": 4, "recreate_failed": 2, "recreate_terminating_or_failed": 2} {
		c.waitForMetric("job_pods_creation_total", map[string]string{"reason": reason, "status": "succeeded"}, pods)
	}
}
