package ttlafterfinished

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// The times and outcomes of one reconcile, on a clock that stands still.
func TestReconcile(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	gone := apierrors.NewNotFound(jobResource.GroupResource(), "job")
	replaced := apierrors.NewConflict(jobResource.GroupResource(), "job", errors.New("uid"))
	finished := func(ago time.Duration, ttl int32) *batchv1.Job {
		job := finishedJob(&ttl, is(batchv1.JobComplete, now.Add(-ago)))
		job.Namespace, job.Name, job.UID = "a", "job", "1"
		return job
	}
	noTime := finished(0, 5)
	noTime.Status.Conditions[0].LastTransitionTime = metav1.Time{}
	for name, test := range map[string]struct {
		cached, live *batchv1.Job
		answer       error
		after        time.Duration
		gets, dels   int
		fails        bool
	}{
		"too early":                     {cached: finished(4*time.Second, 5), after: time.Second},
		"the very instant":              {cached: finished(5*time.Second, 5), live: finished(5*time.Second, 5), gets: 1, dels: 1},
		"long ago":                      {cached: finished(time.Hour, 0), live: finished(time.Hour, 0), gets: 1, dels: 1},
		"finished in the future":        {cached: finished(-time.Minute, 5), after: 65 * time.Second},
		"given more time meanwhile":     {cached: finished(5*time.Second, 5), live: finished(5*time.Second, 60), gets: 1, after: 55 * time.Second},
		"gone from the cache":           {},
		"gone before it is read":        {cached: finished(5*time.Second, 5), gets: 1},
		"gone before it is deleted":     {cached: finished(5*time.Second, 5), live: finished(5*time.Second, 5), answer: gone, gets: 1, dels: 1},
		"replaced before it is":         {cached: finished(5*time.Second, 5), live: finished(5*time.Second, 5), answer: replaced, gets: 1, dels: 1, fails: true},
		"no time in its condition":      {cached: noTime, fails: true},
		"lost its time in the meantime": {cached: finished(5*time.Second, 5), live: noTime, gets: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := &fake.Clientset{}
			api.AddReactor("get", "jobs", func(kubetesting.Action) (bool, runtime.Object, error) {
				if test.live == nil {
					return true, nil, gone
				}
				return true, test.live, nil
			})
			api.AddReactor("delete", "jobs", func(a kubetesting.Action) (bool, runtime.Object, error) {
				options := a.(kubetesting.DeleteActionImpl).DeleteOptions
				if ptr.Deref(options.PropagationPolicy, "") != metav1.DeletePropagationForeground || ptr.Deref(options.Preconditions.UID, "") != "1" {
					t.Errorf("deleted with %+v", options)
				}
				return true, nil, test.answer
			})
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if test.cached != nil {
				if err := store.Add(test.cached); err != nil {
					t.Fatal(err)
				}
			}
			deletions, err := registerDeletions(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			c := &ttlController{
				client: api, logger: slog.New(slog.DiscardHandler), clock: clocktesting.NewFakePassiveClock(now),
				jobs: batchlisters.NewJobLister(store), deletions: deletions,
			}
			result, err := c.reconcile(t.Context(), cache.NewObjectName("a", "job"))
			if (err != nil) != test.fails || errors.Is(test.answer, replaced) && !errors.Is(err, replaced) {
				t.Errorf("error %v", err)
			}
			if result.RequeueAfter != test.after {
				t.Errorf("comes back after %s, want %s", result.RequeueAfter, test.after)
			}
			gets, dels := 0, 0
			for _, action := range api.Actions() {
				switch action.GetVerb() {
				case "get":
					gets++
				case "delete":
					dels++
				}
			}
			if gets != test.gets || dels != test.dels {
				t.Errorf("%d reads and %d deletions, want %d and %d", gets, dels, test.gets, test.dels)
			}
		})
	}
}
