package job_test

import (
	"context"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

// statuses follows all statuses that Jobs ever have, and fails the test when
// one of them takes back what an earlier one has told.
type statuses struct {
	c *cluster

	mu     sync.Mutex
	last   map[types.UID]*batchv1.Job
	listed int
}

// followStatuses until the test ends.
func (c *cluster) followStatuses() *statuses {
	c.t.Helper()
	s := &statuses{c: c, last: map[types.UID]*batchv1.Job{}}
	list, err := c.client.BatchV1().Jobs(c.ns).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: c.client.BatchV1().Jobs(c.ns).Watch,
	})
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if j, ok := event.Object.(*batchv1.Job); ok {
				s.note(j)
			} else if ctx.Err() == nil {
				c.t.Errorf("the watch of jobs broke: %s", inJSON(event.Object))
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func (s *statuses) note(j *batchv1.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last[j.UID]
	s.last[j.UID] = j
	u := ptr.Deref(j.Status.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	s.listed = max(s.listed, len(u.Succeeded)+len(u.Failed))
	if before == nil {
		return
	}
	was, is := totals(before), totals(j)
	if is.succeeded < was.succeeded || is.failed < was.failed {
		s.c.t.Errorf("%s counts backwards: %s, then %s", j.Name, inJSON(before.Status), inJSON(j.Status))
	}
	for i := range before.Status.Conditions {
		of := before.Status.Conditions[i].Type
		if of == batchv1.JobSuspended {
			continue
		}
		if i >= len(j.Status.Conditions) || j.Status.Conditions[i].Type != of {
			s.c.t.Errorf("%s has lost a condition: %s, then %s", j.Name, inJSON(before.Status), inJSON(j.Status))
		}
	}
}

type total struct{ succeeded, failed int }

func totals(j *batchv1.Job) total {
	u := ptr.Deref(j.Status.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	return total{int(j.Status.Succeeded) + len(u.Succeeded), int(j.Status.Failed) + len(u.Failed)}
}

// mostListed is the most UIDs that a status had at once.
func (s *statuses) mostListed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}
