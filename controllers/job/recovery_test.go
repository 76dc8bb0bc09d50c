package job_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	"github.com/wheelhouse-project/wheelhouse/test/podcensus"
)

func TestAcceptance17_PodsOfDeletedJobsAreReleased(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(3, 3)))
	c.create(newJob("orphaned", size(3, 3)))
	pods := slices.Concat(c.waitForPods("work", 3), c.waitForPods("orphaned", 3))
	c.controller.Stop()
	c.succeed(pods[0])
	c.delete("work", metav1.DeletePropagationBackground)
	c.delete("orphaned", metav1.DeletePropagationBackground)
	c.controller.Start()
	c.controller.CatchUp() // or a pod that goes is replaced
	// As the garbage collector does: it deletes some, and makes orphans of others.
	for _, pod := range pods[:3] {
		c.deletePod(pod.Name)
	}
	for _, pod := range pods[3:] {
		c.patchPod(pod.Name, `{"metadata":{"ownerReferences":null}}`)
	}
	harness.Eventually(t, soon, "deletion of the pods", func(ctx context.Context) error {
		pods, err := c.list(ctx, "work")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are left", len(pods))
		}
		return err
	})
	c.released("orphaned")
	c.waitForPods("orphaned", 3)
}

func TestAcceptance18_PodsAreCountedOnceAcrossARestart(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(4, 4)))
	pods := c.waitForPods("work", 4)
	allow := c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "patch" && r.Resource == podResource }, http.StatusForbidden, 0)
	c.succeed(pods[:2]...)
	c.fail(pods[2], time.Now().Add(-time.Minute))
	j := c.waitFor("work", "uncounted pods", counts(2, 2, 1))
	if u := j.Status.UncountedTerminatedPods; len(u.Succeeded) != 2 || len(u.Failed) != 1 {
		t.Errorf("uncounted %s", inJSON(u))
	}
	c.controller.Restart()
	// A pod that is taken for failed stays so, whatever it says afterwards.
	c.setPodStatus(pods[2].Name, finished(v1.PodSucceeded, 0, time.Now()))
	harness.Throughout(t, aWhile, "the counts", func(context.Context) error {
		if fault := counts(2, 2, 1)(c.get("work").Status); fault != "" {
			return fmt.Errorf("%s", fault)
		}
		return nil
	})
	allow()
	c.succeed(c.waitForPods("work", 2)...)
	j = c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 4, 1))
	if j.Status.Succeeded != 4 || j.Status.Failed != 1 {
		t.Errorf("status %s", inJSON(j.Status))
	}
	c.released("work")
}

func TestAcceptance19_ManyPodsAreCountedInParts(t *testing.T) {
	t.Parallel()
	const many = 600
	c := start(t, harness.Options{})
	uncounted := c.followStatuses()
	census := podcensus.Take(t, c.client, c.ns)
	c.create(newJob("work", size(many, many)))
	harness.Eventually(t, minutes, "the pods", func(context.Context) error { return census.Has("work", many) })
	c.waitFor("work", "the number of pods", counts(many, 0, 0))
	pods := c.waitForPods("work", many)
	c.replace(func() {
		var all sync.WaitGroup
		for part := range slices.Chunk(pods, many/8) {
			all.Go(func() {
				for i := range part {
					finished(v1.PodSucceeded, 0, time.Now())(&part[i])
					if _, err := c.client.CoreV1().Pods(c.ns).UpdateStatus(t.Context(), &part[i], metav1.UpdateOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}, nil)
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, many, 0))
	c.released("work")
	if most := uncounted.mostListed(); most > 500 || most < 100 {
		t.Errorf("%d pods uncounted at most", most)
	}
	if made := census.Of("work"); made.Created != many || made.Most > many {
		t.Errorf("pods %+v", made)
	}
}

func TestAcceptance20_AJobInheritsNothingFromItsNamesake(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(5, 5)))
	pods := c.waitForPods("work", 5)
	c.replace(func() {
		for _, pod := range pods {
			c.fail(pod, time.Now())
		}
	}, nil)
	c.waitFor("work", "five failures", counts(0, 0, 5))
	c.delete("work", metav1.DeletePropagationBackground)
	j := c.create(newJob("work"))
	next, after := c.since(j.CreationTimestamp.Time, "work", pods...)
	// Five failures hold the next pod back for 160 s.
	if after > 2*time.Minute || next.OwnerReferences[0].UID != j.UID {
		t.Errorf("a pod of %v after %s", next.OwnerReferences, after)
	}
	c.waitFor("work", "a fresh count", counts(1, 0, 0))
}

func TestAcceptance21_AQuotaIsRecoveredFrom(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.LimitPods("3")
	c.create(newJob("work", size(10, 10)))
	c.waitFor("work", "three pods", counts(3, 0, 0))
	c.retriesCalmly()
	// The first reconcile asks for 1, 2 and 4 pods, and each later one for a single one.
	harness.Eventually(t, soon, "a refused creation for each retry", func(context.Context) error {
		created := c.writes("create")
		refused := len(slices.DeleteFunc(slices.Clone(created), func(r apiproxy.Request) bool { return r.Code != http.StatusForbidden }))
		tries := int(c.metric("job_syncs_total", map[string]string{"action": "pods_created", "result": "error"}))
		if len(created)-refused != 3 || refused != 4+tries-1 {
			return fmt.Errorf("%d creations, %d of them refused, in %d reconciles", len(created), refused, tries)
		}
		return nil
	})
	c.waitForEvent("work", v1.EventTypeWarning, "FailedCreate", "exceeded quota: pods, requested: pods=1, used: pods=3, limited: pods=3")
	c.LimitPods("20")
	c.waitFor("work", "ten pods", counts(10, 0, 0))
}

func TestAJobIsResumedWhoseNewPodsAreRefused(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.LimitPods("0")
	c.create(newJob("work", size(2, 2), suspend, func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](4) }))
	c.waitFor("work", "suspension", condition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", ""))
	c.change("work", func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) })
	j := c.waitFor("work", "resumption", condition(batchv1.JobSuspended, v1.ConditionFalse, "JobResumed", ""))
	if j.Status.StartTime == nil {
		t.Errorf("resumed without a start time: %s", inJSON(j.Status))
	}
	c.waitForEvent("work", v1.EventTypeNormal, "Resumed", "Job resumed")
	c.waitForEvent("work", v1.EventTypeWarning, "FailedCreate", "exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0")
	c.waitFor("work", "the end of its time", ended(batchv1.JobFailed, "DeadlineExceeded"), counts(0, 0, 0))
}

// retriesCalmly wants refused creations, of which there was one at least, to be
// retried at intervals that double from a second on.
func (c *cluster) retriesCalmly() {
	c.t.Helper()
	refused := func() []apiproxy.Request {
		return slices.DeleteFunc(c.writes("create"), func(r apiproxy.Request) bool { return r.Code != http.StatusForbidden })
	}
	// What was done before makes events, the last of which may cause one more
	// attempt between two others.
	c.controller.CatchUp()
	before := len(refused())
	harness.Eventually(c.t, soon, "retries", func(context.Context) error {
		if n := len(refused()); n < before+3 {
			return fmt.Errorf("%d refused creations, %d before", n, before)
		}
		return nil
	})
	requests := refused()
	if after := requests[before+2].At.Sub(requests[before+1].At); after < 1900*time.Millisecond {
		c.t.Errorf("retry after %s", after)
	}
}

func TestAcceptance22_OnlyOrphansOfBatchJobsAreReleased(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	owner := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "b6ef1c8e-6c1c-4b1c-9f1c-1c1c1c1c1c1c"}}
	owner.Spec.Template = newJob("other").Spec.Template
	c.createPod(newPod("foreign", owner, func(pod *v1.Pod) { pod.OwnerReferences[0].APIVersion = "batch.example.com/v1" }))
	c.createPod(newPod("alone", owner, func(pod *v1.Pod) { pod.OwnerReferences = nil }))
	c.createPod(newPod("plain", owner, func(pod *v1.Pod) { pod.OwnerReferences[0].Controller = ptr.To(false) }))
	c.deletePod("foreign")
	for _, name := range []string{"alone", "plain"} {
		harness.Eventually(t, soon, "release of "+name, func(ctx context.Context) error {
			pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, name, metav1.GetOptions{})
			if err == nil && tracked(pod) {
				err = fmt.Errorf("it is held")
			}
			return err
		})
	}
	c.controller.CatchUp()
	harness.Throughout(t, aWhile, "patience", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, "foreign", metav1.GetOptions{})
		if err == nil && !tracked(pod) {
			err = fmt.Errorf("it is released")
		}
		return err
	})
}

// What a Job was about to adopt is nobody's when the Job goes before it has.
func TestPodsOfAJobThatCouldNotAdoptThemAreReleased(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	j := c.create(newJob("work"))
	c.waitForPods("work", 1)
	refuse := func(r apiproxy.Request) bool {
		return r.Verb == "patch" && r.Resource == podResource && r.Name == "orphan"
	}
	allow := c.Proxy.Answer(refuse, http.StatusInternalServerError, 0)
	c.createPod(newPod("orphan", j, func(pod *v1.Pod) {
		pod.OwnerReferences = nil
		pod.Labels = j.Spec.Template.Labels
	}))
	harness.Eventually(t, soon, "a refused adoption", func(context.Context) error {
		if len(c.Proxy.Requests(refuse)) == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
	c.delete("work", metav1.DeletePropagationBackground)
	c.waitUntilSeen()
	allow()
	c.released("work")
}

func TestAcceptance23_WorkersMayChangeUnderLoad(t *testing.T) {
	t.Parallel()
	const load = 50
	c := start(t, harness.Options{})
	app := func(i int) string { return fmt.Sprint("work-", i) }
	for i := range load {
		c.create(newJob(app(i), size(2, 2)))
	}
	stop := c.runPods(func(*v1.Pod) (v1.PodPhase, bool) { return v1.PodSucceeded, true })
	c.controller.Resize(1)
	c.waitFor(app(0), "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 2, 0))
	c.controller.Resize(10)
	c.controller.Restart()
	for i := range load {
		c.waitFor(app(i), "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 2, 0))
	}
	stop()
	if created := len(c.writes("create")); created != 2*load {
		t.Errorf("%d pods were created", created)
	}
}

func TestAcceptance24_ALateWatchOfJobsMakesNoPodTwice(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.Proxy.DelayWatches(jobResource, 2*time.Second)
	census := podcensus.Take(t, c.client, c.ns)
	c.create(newJob("work", size(3, 2)))
	c.create(newJob("index", indexed(3, 2)))
	stop := c.runPods(func(*v1.Pod) (v1.PodPhase, bool) { return v1.PodSucceeded, true })
	for _, app := range []string{"work", "index"} {
		c.waitFor(app, "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 3, 0))
		harness.Eventually(t, soon, "the census", func(context.Context) error {
			if made := census.Of(app); made.Created != 3 || made.Most > 2 {
				return fmt.Errorf("%s: %+v", app, made)
			}
			return nil
		})
	}
	stop()
}

// runPods is a kubelet: verdict says how an active pod ends, and whether it does now.
func (c *cluster) runPods(verdict func(*v1.Pod) (v1.PodPhase, bool)) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			pods, err := c.client.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range pods.Items {
				pod := &pods.Items[i]
				if phase, ends := verdict(pod); ends && isActive(pod) {
					finished(phase, 1, time.Now())(pod)
					// A conflict or a pod that is gone: the next round looks again.
					_, _ = c.client.CoreV1().Pods(c.ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
				}
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	c.t.Cleanup(stop)
	return stop
}
