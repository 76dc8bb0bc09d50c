package ttlafterfinished

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{Audit: true})) }

const (
	// soon is ample for what must come on a busy machine. How soon it does is
	// tested on a clock, in TestReconcile.
	soon = 2 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = time.Second
)

// world is an engine with its jobs.
type world struct {
	*harness.Engine
	t *testing.T
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{Engine: harness.New(t, controlplane.Shared(t), harness.Options{}), t: t}
}

// newTimedWorld is a world whose clock the test sets forward: what the test does
// before a TTL is over may take long on a busy machine.
func newTimedWorld(t *testing.T) (*world, *clocktesting.FakeClock) {
	t.Helper()
	clock := harness.NewClock(t, time.Now())
	return &world{Engine: harness.New(t, controlplane.Shared(t), harness.Options{Clock: clock}), t: t}, clock
}

// job creates a job with a TTL in seconds; none when it is negative.
func (w *world) job(name string, ttl int32, finalizers ...string) *batchv1.Job {
	w.t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "none"}},
		}}},
	}
	if ttl >= 0 {
		job.Spec.TTLSecondsAfterFinished = &ttl
	}
	job, err := w.Admin.BatchV1().Jobs(w.Namespace).Create(w.t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

// finish makes a job end with a condition, which the API server wants to be
// announced first, at a time, which it keeps in whole seconds.
func (w *world) finish(name string, with batchv1.JobConditionType, at time.Time) time.Time {
	w.t.Helper()
	at = at.Truncate(time.Second)
	job := w.get(name)
	if job == nil {
		w.t.Fatalf("job %s is gone", name)
	}
	condition := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
	}
	start := metav1.NewTime(at.Add(-time.Minute))
	job.Status.StartTime = &start
	switch with {
	case batchv1.JobComplete:
		end := metav1.NewTime(at)
		job.Status.CompletionTime = &end
		job.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet), condition(with)}
	case batchv1.JobFailed:
		job.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobFailureTarget), condition(with)}
	default:
		job.Status.Conditions = []batchv1.JobCondition{condition(with)}
	}
	if _, err := w.Admin.BatchV1().Jobs(w.Namespace).UpdateStatus(w.t.Context(), job, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return at
}

// get returns a job, nil when it is gone.
func (w *world) get(name string) *batchv1.Job {
	w.t.Helper()
	job, err := w.Admin.BatchV1().Jobs(w.Namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

// patch sets the TTL, as JSON.
func (w *world) patch(name, ttl string) {
	w.t.Helper()
	body := fmt.Sprintf(`{"spec":{"ttlSecondsAfterFinished":%s}}`, ttl)
	_, err := w.Admin.BatchV1().Jobs(w.Namespace).Patch(w.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// requests of the controller for a job.
func (w *world) requests(verb, name string) []apiproxy.Request {
	return w.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Verb == verb && r.Resource == jobResource.GroupResource() && r.Name == name
	})
}

// deleted waits for the controller's one DELETE of a job and returns when it was.
func (w *world) deleted(name string) time.Time {
	w.t.Helper()
	var at time.Time
	harness.Eventually(w.t, soon, "deletion of job "+name, func(context.Context) error {
		deletes := w.requests("delete", name)
		if len(deletes) == 0 {
			return errors.New("no delete was sent")
		}
		at = deletes[0].At
		return nil
	})
	return at
}

// kept fails the test when a job is deleted within a while.
func (w *world) kept(name string) {
	w.t.Helper()
	harness.Throughout(w.t, aWhile, "life of job "+name, func(context.Context) error {
		if deletes := w.requests("delete", name); len(deletes) > 0 {
			return fmt.Errorf("it was deleted at %s", deletes[0].At)
		}
		return nil
	})
}

func TestAcceptance01And02_AFinishedJobIsDeletedAfterItsTTL(t *testing.T) {
	t.Parallel()
	for _, condition := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		t.Run(string(condition), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Start(Descriptor(), nil)
			job := w.job("job", 5)
			pod := w.podOf(job)
			finish := w.finish("job", condition, time.Now())
			if after := w.deleted("job").Sub(finish); after < 5*time.Second {
				t.Errorf("deleted %s after its end, want 5 s", after)
			}
			w.collected("job", pod)
		})
	}
}

// podOf creates a pod of a job, as the job controller does but for its finalizer.
func (w *world) podOf(job *batchv1.Job) string {
	w.t.Helper()
	yes := true
	pod, err := w.Admin.CoreV1().Pods(w.Namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-pod", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: &yes, BlockOwnerDeletion: &yes,
		}}},
		Spec: job.Spec.Template.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod.Name
}

// garbage is the garbage collector that all tests share.
var garbage struct {
	sync.Mutex
	started bool
	err     error
}

// collected waits until the garbage collector has ended a job and its pod.
func (w *world) collected(job, pod string) {
	w.t.Helper()
	garbage.Lock()
	if !garbage.started {
		garbage.started = true
		_, garbage.err = controlplane.Shared(w.t).StartPeer(context.Background(), controlplane.PeerOptions{
			Controllers: []string{"garbage-collector-controller"},
			Args:        []string{"--leader-elect=false"},
		})
	}
	err := garbage.err
	garbage.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	harness.Eventually(w.t, soon, "end of the job and its pod", func(ctx context.Context) error {
		_, jobErr := w.Admin.BatchV1().Jobs(w.Namespace).Get(ctx, job, metav1.GetOptions{})
		_, podErr := w.Admin.CoreV1().Pods(w.Namespace).Get(ctx, pod, metav1.GetOptions{})
		if apierrors.IsNotFound(jobErr) && apierrors.IsNotFound(podErr) {
			return nil
		}
		return fmt.Errorf("get job: %w; get pod: %w", jobErr, podErr)
	})
}

func TestAcceptance03_ATTLOfZeroDeletesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	w.job("job", 0)
	w.finish("job", batchv1.JobComplete, time.Now())
	w.deleted("job")
}

// A 404 of something before the API server does not let a Job stay for ever.
func TestOnlyTheAPIServerKnowsThatAJobIsGone(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"get", "delete"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Start(Descriptor(), nil)
			stop := w.Proxy.Answer(func(r apiproxy.Request) bool {
				return r.Verb == verb && r.Resource == jobResource.GroupResource() && r.Name == "job"
			}, http.StatusNotFound, 0)
			w.job("job", 0)
			w.finish("job", batchv1.JobComplete, time.Now())
			harness.Eventually(t, soon, "an answer", func(context.Context) error {
				if len(w.requests(verb, "job")) == 0 {
					return errors.New("none so far")
				}
				return nil
			})
			stop()
			harness.Eventually(t, soon, "the deletion", func(context.Context) error {
				deletes := w.requests("delete", "job")
				if len(deletes) == 0 || deletes[len(deletes)-1].Code != http.StatusOK {
					return fmt.Errorf("requests %v", deletes)
				}
				return nil
			})
		})
	}
}

func TestAcceptance04_AJobWithoutTTLStaysUntilItGetsOne(t *testing.T) {
	t.Parallel()
	w, clock := newTimedWorld(t)
	controller := w.Start(Descriptor(), nil)
	w.job("job", -1)
	w.finish("job", batchv1.JobComplete, clock.Now())
	controller.CatchUp()
	clock.Step(time.Hour)
	w.kept("job")
	w.patch("job", "1")
	w.deleted("job")
}

func TestAcceptance05_TheTTLIsLengthenedAndShortened(t *testing.T) {
	t.Parallel()
	w, clock := newTimedWorld(t)
	controller := w.Start(Descriptor(), nil)
	w.job("job", 60)
	finish := w.finish("job", batchv1.JobComplete, clock.Now())
	controller.CatchUp()
	clock.SetTime(finish.Add(30 * time.Second))
	w.kept("job")
	w.patch("job", "3600")
	clock.SetTime(finish.Add(2 * time.Minute))
	w.kept("job")
	w.patch("job", "1")
	w.deleted("job") // long before the former TTL is over
}

func TestAcceptance06_TheTTLIsRemoved(t *testing.T) {
	t.Parallel()
	w, clock := newTimedWorld(t)
	controller := w.Start(Descriptor(), nil)
	w.job("job", 60)
	finish := w.finish("job", batchv1.JobComplete, clock.Now())
	controller.CatchUp()
	clock.SetTime(finish.Add(30 * time.Second))
	w.kept("job")
	w.patch("job", "null")
	clock.SetTime(finish.Add(2 * time.Minute))
	w.kept("job")
}

func TestAcceptance07_AJobHeldByAFinalizerIsDeletedOnce(t *testing.T) {
	t.Parallel()
	const hold = "example.com/hold"
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	job := w.job("job", 1, hold)
	finish := w.finish("job", batchv1.JobComplete, time.Now())
	w.deleted("job")

	var deletes []auditv1.Event
	harness.Eventually(t, soon, "audit entry", func(context.Context) (err error) {
		deletes, err = controlplane.Shared(t).Audit().Requests(0, func(e auditv1.Event) bool {
			return e.Verb == "delete" && e.ObjectRef.Resource == "jobs" && e.ObjectRef.Namespace == w.Namespace
		})
		if err == nil && len(deletes) == 0 {
			return errors.New("none")
		}
		return err
	})
	var options metav1.DeleteOptions
	if err := json.Unmarshal(deletes[0].RequestObject.Raw, &options); err != nil {
		t.Fatal(err)
	}
	if options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationForeground {
		t.Errorf("propagation policy %v, want Foreground", options.PropagationPolicy)
	}
	if options.Preconditions == nil || options.Preconditions.UID == nil || *options.Preconditions.UID != job.UID {
		t.Errorf("preconditions %+v, want the job's UID %s", options.Preconditions, job.UID)
	}
	if want := "system:serviceaccount:kube-system:ttl-after-finished-controller"; deletes[0].User.Username != want {
		t.Errorf("deleted by %s, want %s", deletes[0].User.Username, want)
	}

	held := w.get("job")
	if held == nil || held.DeletionTimestamp == nil || held.DeletionTimestamp.Before(&metav1.Time{Time: finish.Add(time.Second)}) {
		t.Fatalf("the job is not held in deletion from 1 s after its end: %+v", held)
	}
	// An event of the held job must not delete it again.
	body := []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`)
	_, err := w.Admin.BatchV1().Jobs(w.Namespace).Patch(t.Context(), "job", types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	harness.Throughout(t, 2*time.Second, "a single deletion", func(context.Context) error {
		if deletes := w.requests("delete", "job"); len(deletes) != 1 {
			return fmt.Errorf("%d deletions", len(deletes))
		}
		return nil
	})
	harness.Eventually(t, soon, "end of the job", func(ctx context.Context) error {
		body := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := w.Admin.BatchV1().Jobs(w.Namespace).Patch(ctx, "job", types.MergePatchType, body, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", err)
	})
}

func TestAcceptance08_ATTLThatRanOutWhileStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	w.job("job", 5)
	controller.Stop()
	finish := w.finish("job", batchv1.JobComplete, time.Now().Add(-20*time.Second))
	controller.Start()
	w.deleted("job")
	// Observed after the answer.
	harness.Eventually(t, soon, "observation", func(context.Context) error {
		histogram, err := deletions(controller)
		if err != nil {
			return err
		}
		late := time.Since(finish.Add(5 * time.Second)).Seconds()
		if sum := histogram.GetSampleSum(); histogram.GetSampleCount() != 1 || sum < 15 || sum > late {
			return fmt.Errorf("%d observations of %f s, want one of 15 s to %f s", histogram.GetSampleCount(), sum, late)
		}
		return nil
	})
}

// deletions is the controller's histogram.
func deletions(controller *harness.Instance) (*dto.Histogram, error) {
	families, err := controller.Metrics.Gather()
	if err != nil {
		return nil, err
	}
	for _, family := range families {
		if family.GetName() == "ttl_after_finished_controller_job_deletion_duration_seconds" {
			return family.GetMetric()[0].GetHistogram(), nil
		}
	}
	return nil, fmt.Errorf("none in %d families", len(families))
}

func TestAcceptance09_AJobThatIsOnlyAboutToFailStays(t *testing.T) {
	t.Parallel()
	w, clock := newTimedWorld(t)
	controller := w.Start(Descriptor(), nil)
	w.job("job", 0)
	w.finish("job", batchv1.JobFailureTarget, clock.Now())
	controller.CatchUp()
	clock.Step(time.Hour)
	w.kept("job")
}

func TestAcceptance10_AStaleCacheDeletesNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(w *world)
	}{
		{"the TTL was lengthened", func(w *world) { w.patch("job", "1000000") }},
		{"the job was replaced", func(w *world) {
			background := metav1.DeletePropagationBackground
			err := w.Admin.BatchV1().Jobs(w.Namespace).Delete(w.t.Context(), "job", metav1.DeleteOptions{PropagationPolicy: &background})
			if err != nil {
				w.t.Fatal(err)
			}
			w.job("job", 60)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, clock := newTimedWorld(t)
			controller := w.Start(Descriptor(), nil)
			w.job("job", 60)
			w.finish("job", batchv1.JobComplete, clock.Now())
			controller.CatchUp()
			release := w.Proxy.HoldWatches(jobResource.GroupResource())
			test.change(w)
			harness.Eventually(t, soon, "a live read", func(context.Context) error {
				clock.Step(time.Second)
				if len(w.requests("get", "job")) == 0 {
					return errors.New("none so far")
				}
				return nil
			})
			w.kept("job")
			release()
			controller.CatchUp()
			w.kept("job")
			if gets := w.requests("get", "job"); len(gets) != 1 {
				t.Errorf("%d live reads, want 1: %+v", len(gets), gets)
			}
			if w.get("job") == nil {
				t.Error("the job is gone")
			}
		})
	}
}

func TestReloadsAtAnyMomentChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	// Without requests that are cut off: the API server may carry one of those
	// out after the next life has read the job.
	stop := controller.Reload(uint64(time.Now().UnixNano()), 30, 10)
	const count = 40
	expiry := map[string]time.Time{}
	for n := range count {
		name := fmt.Sprintf("job-%d", n)
		ttl := int32(n%5 - 1) // none to 3 s
		w.job(name, ttl)
		finish := w.finish(name, batchv1.JobComplete, time.Now())
		if ttl >= 0 {
			expiry[name] = finish.Add(time.Duration(ttl) * time.Second)
		}
	}
	harness.Eventually(t, soon, "end of all jobs with a TTL", func(ctx context.Context) error {
		list, err := w.Admin.BatchV1().Jobs(w.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			job := &list.Items[i]
			if job.Spec.TTLSecondsAfterFinished != nil && job.DeletionTimestamp == nil {
				return fmt.Errorf("%s is still there", job.Name)
			}
		}
		return nil
	})
	stop()

	// The API server's own count.
	var entries []auditv1.Event
	attempts, answered := map[string]int{}, map[string]int{}
	harness.Eventually(t, soon, "complete audit log", func(context.Context) (err error) {
		entries, err = controlplane.Shared(t).Audit().Requests(0, func(e auditv1.Event) bool {
			return e.Verb == "delete" && e.ObjectRef.Resource == "jobs" && e.ObjectRef.Namespace == w.Namespace
		})
		clear(attempts)
		for i := range entries {
			attempts[entries[i].ObjectRef.Name]++
		}
		if err == nil && len(attempts) < len(expiry) {
			return fmt.Errorf("%d jobs were deleted, want %d", len(attempts), len(expiry))
		}
		return err
	})
	for i := range entries {
		name := entries[i].ObjectRef.Name
		if entries[i].ResponseStatus.Code == http.StatusOK {
			answered[name]++
		}
		end, expires := expiry[name]
		if at := entries[i].RequestReceivedTimestamp.Time; !expires || at.Before(end) {
			t.Errorf("%s was deleted at %s, want not before %s", name, at, end)
		}
	}
	for name, times := range answered {
		if times > 1 {
			t.Errorf("%s was deleted %d times", name, times)
		}
	}
}
