package job_test

import (
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/job"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// A process that is killed right after a request was carried out, without
// having got the answer, is succeeded by another one that counts every pod once.
func TestCrashBetweenAnyTwoRequests(t *testing.T) {
	t.Parallel()
	status := func(r apiproxy.Request) bool { return r.Resource == jobResource && r.Subresource == "status" }
	pods := func(verb string) func(apiproxy.Request) bool {
		return func(r apiproxy.Request) bool { return r.Resource == podResource && r.Verb == verb }
	}
	succeeds := []func(batchv1.JobStatus) string{ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 4, 1)}
	fails := []func(batchv1.JobStatus) string{ended(batchv1.JobFailed, "BackoffLimitExceeded"), counts(0, 1, 3)}
	for _, test := range []struct {
		name string
		job  *batchv1.Job
		// after pods have finished, the how-manieth request of which kind is the last.
		kind  func(apiproxy.Request) bool
		count int64
		end   []func(batchv1.JobStatus) string
	}{
		{"status written, finalizers not removed", newJob("work", size(4, 4)), status, 1, succeeds},
		{"some finalizers removed", newJob("work", size(4, 4)), pods("patch"), 2, succeeds},
		{"all finalizers removed, not settled", newJob("work", size(4, 4)), pods("patch"), 4, succeeds},
		{"settled", newJob("work", size(4, 4)), status, 2, succeeds},
		{"replacement created", newJob("work", size(4, 4)), pods("create"), 1, succeeds},
		{"end announced", newJob("work", size(4, 4)), status, 3, succeeds},
		{"indexes written, finalizers not removed", newJob("work", indexed(4, 4)), status, 1, succeeds},
		{"indexes written, some finalizers removed", newJob("work", indexed(4, 4)), pods("patch"), 2, succeeds},
		{"failure held back, limit per index", newJob("work", indexed(4, 4), perIndex(1)), status, 1, succeeds},
		{"failure handed on, limit per index", newJob("work", indexed(4, 4), perIndex(1)), pods("create"), 1, succeeds},
		{"failure announced, pods not deleted", newJob("work", size(4, 4), backoffLimit(0)), status, 1, fails},
		{"failure announced, some pods deleted", newJob("work", size(4, 4), backoffLimit(0)), pods("delete"), 1, fails},
		{"failure announced, some finalizers removed", newJob("work", size(4, 4), backoffLimit(0)), pods("patch"), 2, fails},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			c.followStatuses()
			c.create(test.job)
			made := c.waitForPods("work", 4)
			c.waitFor("work", "four pods", counts(4, 0, 0))

			var seen atomic.Int64
			reached := make(chan struct{})
			failing := test.job.Spec.BackoffLimit != nil
			finish := made[:3]
			if failing {
				finish = made[:1]
			}
			c.replace(func() {
				c.succeed(finish...)
				c.fail(made[3], time.Now().Add(-9*time.Second))
			}, func(proxy *apiproxy.Proxy) {
				proxy.After(func(r apiproxy.Request) {
					if test.kind(r) && r.Code < 300 && seen.Add(1) == test.count {
						proxy.Cut()
						close(reached)
					}
				})
			})
			stop := c.runPods(func(pod *v1.Pod) (v1.PodPhase, bool) {
				for i := range made {
					if pod.UID == made[i].UID {
						return "", false
					}
				}
				return v1.PodSucceeded, true
			})
			select {
			case <-reached:
			case <-time.After(soon):
				t.Fatalf("%d such requests only", seen.Load())
			}
			c.Crash()

			successor := harness.New(t, controlplane.Shared(t), harness.Options{Scope: apiproxy.Scope{Namespace: c.Namespace}})
			successor.Start(job.Descriptor(), nil)
			c.waitFor("work", "the end", test.end...)
			stop()
			c.released("work")
		})
	}
}
