package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// The least possible requests: two for each pod, one to make it and one to let
// it go; one status that tells of the start, one that counts and announces the
// end, one that declares it, and one a second if that takes long.
func TestAJobTakesTheLeastRequests(t *testing.T) {
	t.Parallel()
	const size20 = 20
	for _, test := range []struct {
		name  string
		shape func(completions, parallelism int32) func(*batchv1.Job)
	}{{"work", size}, {"index", indexed}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			begin := time.Now()
			c.create(newJob(test.name, test.shape(size20, size20)))
			pods := c.waitForPods(test.name, size20)
			c.waitFor(test.name, "the pods", counts(size20, 0, 0))
			release := c.Proxy.HoldWatches(podResource)
			c.succeed(pods...)
			release()
			c.waitFor(test.name, "completion", ended(batchv1.JobComplete, "CompletionsReached"))
			c.released(test.name)
			c.waitForEvent(test.name, v1.EventTypeNormal, "Completed", "Job completed")
			// What takes long is told of once a second meanwhile.
			seconds := int(time.Since(begin) / time.Second)
			if create, patch := len(c.writes("create")), len(c.writes("patch")); create != size20 || patch != size20 {
				t.Errorf("%d creations, %d patches", create, patch)
			}
			if status := len(c.Writes(jobResource)); status < 3 || status > 3+seconds {
				t.Errorf("%d statuses in %d seconds", status, seconds)
			}
			events := c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource.Resource == "events" })
			if len(events) > 4+seconds {
				t.Errorf("%d requests for events in %d seconds", len(events), seconds)
			}
			for _, r := range c.Proxy.Requests(func(r apiproxy.Request) bool {
				return r.Verb == "get" && (r.Resource == podResource || r.Resource == jobResource)
			}) {
				t.Errorf("read %+v", r)
			}
		})
	}
}

// While pods end one after the other, one status a second tells of it, with
// what the one before could not count yet.
func TestAStreamOfPodsIsReportedOnceASecond(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	begin := time.Now()
	c.create(newJob("work", size(30, 5)))
	stop := c.runPods(verdictOf)
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 30, 0))
	stop()
	if statuses, most := len(c.Writes(jobResource)), 3+int(time.Since(begin)/time.Second); statuses > most {
		t.Errorf("%d statuses in %s, want %d at most", statuses, time.Since(begin), most)
	}
	if create, patch := len(c.writes("create")), len(c.writes("patch")); create != 30 || patch != 30 {
		t.Errorf("%d creations, %d patches", create, patch)
	}
}

// Nothing is written when nothing is to be said.
func TestNothingIsWrittenWithoutNeed(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", size(3, 2)))
	pods := c.waitForPods("work", 2)
	c.succeed(pods[0])
	c.waitForPods("work", 2)
	c.waitFor("work", "a count", counts(2, 1, 0), func(s batchv1.JobStatus) string {
		if s.Succeeded != 1 {
			return "want it settled"
		}
		return ""
	})
	c.create(newJob("done"))
	c.succeed(c.waitForPods("done", 1)...)
	c.waitFor("done", "completion", ended(batchv1.JobComplete, "CompletionsReached"))
	c.released("done")
	writes := func() []apiproxy.Request { return append(c.Writes(podResource), c.Writes(jobResource)...) }
	before := len(writes())
	c.controller.Restart()
	c.touch("work")
	c.touch("done")
	c.changePod(pods[1].Name, func(pod *v1.Pod) { pod.Annotations = map[string]string{"touched": "yes"} })
	c.controller.CatchUp()
	harness.Throughout(t, aWhile, "silence", func(context.Context) error {
		if after := writes(); len(after) != before {
			return fmt.Errorf("%d writes", len(after)-before)
		}
		return nil
	})
}

// touch makes an event of a Job without changing what it asks for.
func (c *cluster) touch(name string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now())
	if _, err := c.client.BatchV1().Jobs(c.ns).Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// What users may have written into annotations and owner references does
// neither confuse the counts nor keep the controller busy.
func TestMalformedObjectsAreBorne(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newJob("work", indexed(2, 2), perIndex(1)))
	pods := c.waitForPods("work", 2)
	j := c.waitFor("work", "two pods", counts(2, 0, 0))
	annotate := func(key, value string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[key] = value
		}
	}
	// The count is taken for 0, so that the index may fail once more.
	c.changePod(pods[0].Name, annotate(batchv1.JobIndexFailureCountAnnotation, "-99999999999999999999"))
	c.fail(pods[0], time.Now().Add(-9*time.Second))
	next, _ := c.since(time.Now(), "work", pods...)
	if got := next.Annotations[batchv1.JobIndexFailureCountAnnotation]; got != "1" {
		t.Errorf("the failure count is %q", got)
	}
	// Finished pods with no index, or one out of range, count for nothing.
	for i, index := range []string{"", "two", "2", "99999999999", "1-1"} {
		name := fmt.Sprint("odd-", i)
		c.createPod(newPod(name, j, annotate(batchv1.JobCompletionIndexAnnotation, index), func(pod *v1.Pod) {
			pod.OwnerReferences = nil
			pod.Labels = nil
		}))
		c.setPodStatus(name, finished(v1.PodSucceeded, 0, time.Now()))
	}
	// One of a Job that never was, of a former one of that name, of another kind
	// with the Job's UID.
	for i, change := range []func(*metav1.OwnerReference){
		func(ref *metav1.OwnerReference) { ref.Name = "never" },
		func(ref *metav1.OwnerReference) { ref.UID = "00000000-0000-0000-0000-000000000000" },
		func(ref *metav1.OwnerReference) { ref.Kind, ref.APIVersion = "ReplicaSet", "apps/v1" },
	} {
		name := fmt.Sprint("foreign-", i)
		c.createPod(newPod(name, j, annotate(batchv1.JobCompletionIndexAnnotation, "1"), func(pod *v1.Pod) { change(&pod.OwnerReferences[0]) }))
		c.setPodStatus(name, finished(v1.PodSucceeded, 0, time.Now()))
	}
	c.waitFor("work", "the counts", counts(2, 0, 1), indexes("", ""))
	// Some are released. That comes to an end.
	requests, since := len(c.Proxy.Requests(nil)), time.Now()
	harness.Eventually(t, soon, "calm", func(context.Context) error {
		if now := len(c.Proxy.Requests(nil)); now != requests {
			requests, since = now, time.Now()
		}
		if calm := time.Since(since); calm < aWhile {
			return fmt.Errorf("%d requests, the last %s ago", requests, calm)
		}
		return nil
	})
	if fault := counts(2, 0, 1)(c.get("work").Status); fault != "" {
		t.Error(fault)
	}
	c.succeed(slices.Concat(pods[1:], []v1.Pod{next})...)
	c.waitFor("work", "completion", ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 2, 1), indexes("0,1", ""))
}

// Pods that others have deleted, which the cache does not know yet, are not
// released and deleted over and over again.
func TestPodsThatAreGoneAreLeftToTheirEvents(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*batchv1.Job)
		check  func(batchv1.JobStatus) string
	}{
		{"suspended", suspend, condition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", "")},
		{"ended", func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }, ended(batchv1.JobFailed, "DeadlineExceeded")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			c.create(newJob("work", size(3, 3)))
			pods := c.waitForPods("work", 3)
			c.waitFor("work", "the pods", counts(3, 0, 0))
			c.controller.CatchUp() // or the controller waits for its own last write
			release := c.Proxy.HoldWatches(podResource)
			for i := range pods {
				c.patchPod(pods[i].Name, `{"metadata":{"finalizers":null}}`)
				c.deletePod(pods[i].Name)
			}
			c.change("work", test.change)
			harness.Eventually(t, soon, "the first attempt", func(context.Context) error {
				if len(c.writes("patch")) == 0 {
					return errors.New("no patch")
				}
				return nil
			})
			harness.Throughout(t, aWhile, "patience", func(context.Context) error {
				if patches, deletes := len(c.writes("patch")), len(c.writes("delete")); patches > 12 || deletes > 12 {
					return fmt.Errorf("%d patches, %d deletions", patches, deletes)
				}
				return nil
			})
			release()
			c.waitFor("work", "the change", test.check)
		})
	}
}

// A Job that cannot have its pods is tried again at a calm pace.
func TestARefusedJobIsRetriedCalmly(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.LimitPods("0")
	c.create(newJob("work"))
	c.waitFor("work", "the start", func(s batchv1.JobStatus) string {
		if s.StartTime == nil {
			return "want a start time"
		}
		return ""
	})
	c.retriesCalmly()
}
