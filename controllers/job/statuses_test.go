package job_test

import (
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
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
	harness.Follow(c.t, c.client.BatchV1().Jobs(c.ns), metav1.ListOptions{}, func(_ watch.EventType, j *batchv1.Job) { s.note(j) })
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
