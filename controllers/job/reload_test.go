package job_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
	"github.com/wheelhouse-project/wheelhouse/test/podcensus"
)

// course is what happens to a Job, and how that must end.
type course struct {
	job *batchv1.Job
	// end is the status in the end.
	end []func(batchv1.JobStatus) string
	// created pods in all, and how many may be active at once at most.
	created, most int
}

// verdictOf a pod is told by its app and index, so that it is the same in all runs.
func verdictOf(pod *v1.Pod) (v1.PodPhase, bool) {
	switch app := pod.Labels["app"]; {
	case strings.HasPrefix(app, "fails"), strings.HasPrefix(app, "index-fails") && indexOf(pod) == "1":
		return v1.PodFailed, true
	case strings.HasPrefix(app, "stays"):
		return "", false
	default:
		// Not all at once, so that there is something to count all the time.
		hash := fnv.New32()
		_, _ = hash.Write([]byte(pod.UID))
		return v1.PodSucceeded, time.Since(pod.CreationTimestamp.Time) > time.Duration(hash.Sum32()%2000)*time.Millisecond
	}
}

func courses() []course {
	var all []course
	for i := range 6 {
		all = append(all, course{newJob(fmt.Sprint("runs-", i), size(6, 3)),
			[]func(batchv1.JobStatus) string{ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 6, 0)}, 6, 3})
	}
	for i := range 4 {
		all = append(all, course{newJob(fmt.Sprint("index-", i), indexed(6, 3)),
			[]func(batchv1.JobStatus) string{ended(batchv1.JobComplete, "CompletionsReached"), counts(0, 6, 0), indexes("0-5", "")}, 6, 3})
	}
	for i := range 3 {
		all = append(all, course{newJob(fmt.Sprint("fails-", i), size(3, 1), backoffLimit(0)),
			[]func(batchv1.JobStatus) string{ended(batchv1.JobFailed, "BackoffLimitExceeded"), counts(0, 0, 1)}, 1, 1})
	}
	for i := range 2 {
		all = append(all, course{newJob(fmt.Sprint("index-fails-", i), indexed(4, 2), perIndex(0)),
			[]func(batchv1.JobStatus) string{ended(batchv1.JobFailed, "FailedIndexes"), counts(0, 3, 1), indexes("0,2,3", "1")}, 4, 2})
	}
	suspended := condition(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", "")
	all = append(all,
		course{newJob("stays-suspended-0", size(4, 3)), []func(batchv1.JobStatus) string{suspended, counts(0, 0, 0), terminating(0)}, 3, 3},
		course{newJob("stays-suspended-1", indexed(4, 3)), []func(batchv1.JobStatus) string{suspended, counts(0, 0, 0), terminating(0)}, 3, 3},
		course{newJob("stays-scaled", size(20, 6)), []func(batchv1.JobStatus) string{counts(2, 0, 0), terminating(0)}, 6, 6},
		course{newJob("stays-deleted-0", size(3, 3)), nil, 3, 3},
		course{newJob("stays-deleted-1", indexed(3, 3)), nil, 3, 3},
	)
	return all
}

// A reload at any moment changes nothing about where the cluster ends up: with
// at least 50 restarts and 20 changes of the number of workers, at random
// moments, the same pods are created and counted as without any.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	census := podcensus.Take(t, c.client, c.ns)
	c.followStatuses()
	c.run(census, func() func() { return c.controller.Reload(1, 50, 20) }, true)
}

// So do losses of leadership in the middle of anything. A pod whose creation was
// cut off may come to light late and be surplus, so only the counts are certain.
func TestLossesOfLeadershipLoseNoPod(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	census := podcensus.Take(t, c.client, c.ns)
	c.followStatuses()
	c.run(census, func() func() { return c.controller.Disturb(2) }, false)
}

// run lets all courses take place while the controller is disturbed.
func (c *cluster) run(census *podcensus.Census, disturb func() func(), exact bool) {
	c.t.Helper()
	all := courses()
	stop := disturb()
	for _, course := range all {
		c.create(course.job)
	}
	stopPods := c.runPods(verdictOf)
	for _, course := range all {
		if name := course.job.Name; strings.HasPrefix(name, "stays") {
			harness.Eventually(c.t, minutes, "the pods of "+name, func(context.Context) error { return census.Has(name, course.most) })
		}
	}
	deleted := func(i int) string { return fmt.Sprint("stays-deleted-", i) }
	for i := range 2 {
		c.change(fmt.Sprint("stays-suspended-", i), suspend)
		c.delete(deleted(i), metav1.DeletePropagationBackground)
	}
	c.waitUntilSeen() // or a pod that goes is replaced
	for i := range 2 {
		for _, pod := range c.waitForPods(deleted(i), 3) {
			c.deletePod(pod.Name)
		}
	}
	c.change("stays-scaled", size(20, 2))
	for _, course := range all {
		name := course.job.Name
		if course.end == nil {
			harness.Eventually(c.t, minutes, "deletion of the pods of "+name, func(ctx context.Context) error {
				pods, err := c.list(ctx, name)
				if err == nil && len(pods) > 0 {
					err = fmt.Errorf("%d pods are left", len(pods))
				}
				return err
			})
			continue
		}
		c.waitFor(name, "the end", course.end...)
	}
	stop()
	stopPods()
	end := func(context.Context) error {
		for _, course := range all {
			name := course.job.Name
			for _, wrong := range course.end {
				if fault := wrong(c.get(name).Status); fault != "" {
					return fmt.Errorf("%s: %s", name, fault)
				}
			}
			made := census.Of(name)
			if exact && (made.Created != course.created || made.Most > course.most) {
				return fmt.Errorf("%s: pods %+v, want %d created and %d at most", name, made, course.created, course.most)
			}
		}
		return nil
	}
	harness.Eventually(c.t, soon, "the end", end) // the census may be late
	harness.Throughout(c.t, aWhile, "the end", end)
	for _, course := range all {
		if course.end != nil && !strings.HasPrefix(course.job.Name, "stays") {
			c.released(course.job.Name)
		}
	}
}
