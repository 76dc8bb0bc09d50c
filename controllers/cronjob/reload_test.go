package cronjob_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// record of all Jobs that ever were in a namespace.
type record struct {
	mu sync.Mutex
	// uids by name, as a name may come twice.
	uids map[string]map[types.UID]bool
	// running by the CronJob's label, and the most at once.
	running map[string]map[types.UID]bool
	most    map[string]int
}

// watchJobs keeps a record until the test ends.
func (c *cluster) watchJobs() *record {
	c.t.Helper()
	r := &record{uids: map[string]map[types.UID]bool{}, running: map[string]map[types.UID]bool{}, most: map[string]int{}}
	harness.Follow(c.t, c.client.BatchV1().Jobs(c.ns), metav1.ListOptions{}, r.note)
	return r
}

func (r *record) note(event watch.EventType, job *batchv1.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	app := job.Labels["app"]
	if r.uids[job.Name] == nil {
		r.uids[job.Name] = map[types.UID]bool{}
	}
	if r.running[app] == nil {
		r.running[app] = map[types.UID]bool{}
	}
	r.uids[job.Name][job.UID] = true
	if event == watch.Deleted || len(job.Status.Conditions) > 0 {
		delete(r.running[app], job.UID)
	} else {
		r.running[app][job.UID] = true
	}
	r.most[app] = max(r.most[app], len(r.running[app]))
}

// names of all Jobs that ever were, and an error if one was created twice.
func (r *record) names() ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, uids := range r.uids {
		if len(uids) > 1 {
			return nil, fmt.Errorf("%s was created %d times", name, len(uids))
		}
	}
	return slices.Sorted(maps.Keys(r.uids)), nil
}

// mostOf is how many Jobs of a CronJob ran at once.
func (r *record) mostOf(app string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most[app]
}

// A reload at any moment changes nothing about where the cluster ends up: with
// restarts and changes of the number of workers at random moments, each CronJob
// runs once at each of its times, and keeps the history that it asks for.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	const cronJobs, minutes, kept = 20, 6, 2
	c := start(t)
	name := func(i int) string { return fmt.Sprint("backup-", i) }
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	for i := range cronJobs {
		c.create(newCronJob(name(i), everyMinute, policy(policies[i%3]), func(cronJob *batchv1.CronJob) {
			cronJob.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](kept)
		}))
	}
	jobs := c.watchJobs()
	stop := c.controller.Reload(rand.Uint64(), 50, 20)
	var want []string
	var times []time.Time
	for range minutes {
		// Restarts are never settled; a wait that is lost to the jump of the
		// clock comes again with the next restart.
		minute := c.nextMinute()
		c.clock.SetTime(minute.Add(time.Second))
		times = append(times, minute)
		for i := range cronJobs {
			c.waitForStatus(name(i), minute, minute)
			c.end(jobName(name(i), minute), batchv1.JobComplete, minute)
			want = append(want, jobName(name(i), minute))
		}
		for i := range cronJobs {
			c.waitForStatus(name(i), minute)
		}
	}
	stop()

	last := times[minutes-1]
	for i := range cronJobs {
		c.waitForJobs(name(i), times[minutes-kept:]...)
		got := c.waitForStatus(name(i), last)
		if got.Status.LastSuccessfulTime == nil || !got.Status.LastSuccessfulTime.Time.Equal(last.Add(20*time.Second)) {
			t.Errorf("status of %s: %s", name(i), inJSON(got.Status))
		}
		if most := jobs.mostOf(name(i)); most != 1 {
			t.Errorf("%d jobs of %s ran at once", most, name(i))
		}
	}
	slices.Sort(want)
	final := func(context.Context) error {
		got, err := jobs.names()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("jobs %v, want %v", got, want)
		}
		return err
	}
	harness.Eventually(t, soon, "the final state", final) // the watch may be late
	harness.Throughout(t, aWhile, "the final state", final)
	for i := range cronJobs {
		c.noEvent(name(i), "UnexpectedJob", "MissingJob", "FailedCreate", "FailedDelete")
	}
}

// Nothing is written but what tells something new: for each run a Job and its
// listing, and one write for its end.
func TestNothingIsWrittenWithoutNeed(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newCronJob("backup", everyMinute))
	c.settle()
	c.Proxy.Forget()
	first := c.minute(1)
	c.waitForStatus("backup", first, first)
	c.end(jobName("backup", first), batchv1.JobComplete, first)
	c.waitForStatus("backup", first)
	for range 5 {
		c.patch("backup", fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, time.Now()))
	}
	c.controller.Restart()
	c.settle()
	if writes := len(c.Writes(jobResource)); writes != 1 {
		t.Errorf("%d writes of jobs, want 1", writes)
	}
	if writes := len(c.Writes(cronJobResource)); writes != 2 {
		t.Errorf("%d writes of the CronJob, want 2", writes)
	}
}
