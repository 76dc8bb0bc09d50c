package job

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/jobs"
)

// world is a Job and its pods, on which the requests of a reconcile are carried
// out until one of them crashes the controller.
type world struct {
	t   *testing.T
	job *batchv1.Job
	// pods by UID, in the order of their creation.
	pods   map[types.UID]*v1.Pod
	order  []types.UID
	random *rand.Rand
	now    time.Time
	// requests that are left until the crash.
	requests int
	// succeeded and failed pods that were to be counted, by how they ended first.
	ended map[types.UID]v1.PodPhase
	// givenUp pods must not be counted.
	givenUp map[types.UID]bool
	most    int
}

// request returns false if the controller has crashed before it.
func (w *world) request() bool {
	w.requests--
	return w.requests >= 0
}

// reconcile does what the controller does, in its order, and returns false if
// it was crashed.
func (w *world) reconcile() bool {
	if jobs.Finished(w.job) != nil {
		return true
	}
	job := w.job.DeepCopy()
	var pods []*v1.Pod
	tracked := map[types.UID]bool{}
	for _, uid := range w.order {
		if pod := w.pods[uid]; pod != nil {
			pods = append(pods, pod.DeepCopy())
			tracked[uid] = hasFinalizer(pod)
		}
	}
	s := newState(job, pods, tracked, w.now)
	end := s.decide()
	var made managed
	if end == nil {
		p := s.plan(backOff{})
		for _, pod := range p.remove {
			if !w.request() {
				return false
			}
			w.release(pod, true)
			if !w.request() {
				return false
			}
			w.delete(pod)
		}
		if len(p.remove) > 0 {
			return true
		}
		for _, c := range p.create {
			if !w.request() {
				return false
			}
			w.create(s, c)
			made.created++
			made.indexes = append(made.indexes, c.index)
		}
		for _, pod := range s.active {
			if !hasFinalizer(pod) {
				if !w.request() {
					return false
				}
				w.pods[pod.UID].Finalizers = []string{batchv1.JobTrackingFinalizer}
				delete(w.givenUp, pod.UID)
			}
		}
	}
	if end == nil && s.completed(len(s.active)+made.created) {
		end = &outcome{reason: batchv1.JobReasonCompletionsReached}
	}
	busy := s.activeIndexes()
	for _, index := range made.indexes {
		busy[index] = true
	}
	a := s.account(end, busy)
	new(jobController).describe(&a.status, &step{state: s, end: end, made: made, manages: end == nil})
	killed := s.active
	if end == nil {
		killed = nil
	}
	finishable := end != nil && len(killed) == 0 && len(s.terminating) == 0 && !a.limited
	if !finishable || len(a.release) > 0 {
		if !w.request() {
			return false
		}
		w.write(a.status)
		for _, pod := range killed {
			if !w.request() {
				return false
			}
			if end.failed && w.ended[pod.UID] == "" {
				w.ended[pod.UID] = v1.PodFailed
			} else if !end.failed {
				w.givenUp[pod.UID] = true
			}
			w.delete(pod)
		}
		for _, pod := range a.release {
			if !w.request() {
				return false
			}
			w.release(pod, false)
		}
	}
	if finishable {
		settle(&a.status, func(types.UID) bool { return false })
		appendCondition(&a.status, end.final(), end.reason, end.message, w.now)
		if !w.request() {
			return false
		}
		w.write(a.status)
	}
	return true
}

func (w *world) write(status batchv1.JobStatus) {
	before := &w.job.Status
	u := ptr.Deref(status.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	if status.Succeeded < before.Succeeded || status.Failed < before.Failed || len(u.Succeeded)+len(u.Failed) > burst {
		w.t.Fatalf("%+v was followed by %+v", before, status)
	}
	for _, uid := range u.Failed {
		if w.ended[uid] == "" {
			w.ended[uid] = v1.PodFailed // whatever becomes of it until it is deleted
		}
	}
	w.job.Status = *status.DeepCopy()
}

func (w *world) create(s *state, c creation) {
	makePod, err := newPods(s.job, s.indexed, s.perIndex)
	if err != nil {
		w.t.Fatal(err)
	}
	pod := makePod(c).DeepCopy()
	pod.UID = types.UID(fmt.Sprint("pod-", len(w.order)))
	pod.Status.Phase = v1.PodRunning
	w.pods[pod.UID] = pod
	w.order = append(w.order, pod.UID)
	active := 0
	for _, pod := range w.pods {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == v1.PodRunning {
			active++
		}
	}
	w.most = max(w.most, active)
}

func (w *world) release(pod *v1.Pod, givenUp bool) {
	now := w.pods[pod.UID]
	if now == nil {
		return
	}
	now.Finalizers = nil
	if givenUp && w.ended[pod.UID] == "" {
		w.givenUp[pod.UID] = true
	}
	if now.DeletionTimestamp != nil {
		delete(w.pods, pod.UID)
	}
}

// delete lets a pod go at once unless its finalizer holds it.
func (w *world) delete(pod *v1.Pod) {
	now := w.pods[pod.UID]
	if now == nil {
		return
	}
	if len(now.Finalizers) == 0 {
		delete(w.pods, pod.UID)
		return
	}
	now.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
}

// happen lets a pod end or be deleted.
func (w *world) happen(mayFail bool) {
	if len(w.order) == 0 {
		return
	}
	pod := w.pods[w.order[w.random.IntN(len(w.order))]]
	if pod == nil || pod.DeletionTimestamp != nil {
		return
	}
	switch choice := w.random.IntN(4); {
	case pod.Status.Phase == v1.PodRunning && choice < 2:
		pod.Status.Phase = v1.PodSucceeded
	case pod.Status.Phase == v1.PodRunning && mayFail && choice == 2:
		pod.Status.Phase = v1.PodFailed
	case pod.Status.Phase == v1.PodRunning && !mayFail:
		return
	case choice == 3:
		if pod.Status.Phase == v1.PodRunning {
			w.noteEnd(pod, v1.PodFailed) // for a Job, that is a failure
		}
		w.delete(pod)
		return
	default:
		return
	}
	w.noteEnd(pod, pod.Status.Phase)
}

func (w *world) noteEnd(pod *v1.Pod, as v1.PodPhase) {
	if hasFinalizer(pod) && pod.DeletionTimestamp == nil && w.ended[pod.UID] == "" && !w.givenUp[pod.UID] {
		w.ended[pod.UID] = as
	}
}

// Whatever happens to pods and wherever the controller crashes, every pod is
// counted once, and no more pods are active than allowed.
func TestPodsAreCountedOnceWhereverItCrashes(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		completions, parallelism := int32(1+random.IntN(6)), int32(1+random.IntN(6))
		job := testJob(completions, parallelism)
		indexed := random.IntN(2) == 0
		if indexed {
			job = testIndexedJob(completions, parallelism)
		}
		job.Spec.BackoffLimit = ptr.To[int32](1000)
		if random.IntN(4) == 0 {
			job.Spec.BackoffLimit = ptr.To[int32](2)
		}
		w := &world{t: t, job: job, pods: map[types.UID]*v1.Pod{}, random: random, now: start,
			ended: map[types.UID]v1.PodPhase{}, givenUp: map[types.UID]bool{}}
		for round := range 1000 {
			if jobs.Finished(w.job) != nil {
				break
			}
			w.now = w.now.Add(time.Hour) // longer than any back-off
			for range random.IntN(4) {
				w.happen(round < 60)
			}
			if round < 60 && random.IntN(10) == 0 {
				w.job.Spec.Parallelism = ptr.To(int32(1 + random.IntN(int(parallelism))))
			}
			w.requests = 1000
			if random.IntN(2) == 0 {
				w.requests = random.IntN(12)
			}
			w.reconcile()
		}
		if jobs.Finished(w.job) == nil {
			t.Fatalf("seed %d: not finished: %+v", seed, w.job.Status)
		}
		want := map[v1.PodPhase]int32{}
		for _, phase := range w.ended {
			want[phase]++
		}
		succeeded := want[v1.PodSucceeded]
		if indexed {
			succeeded = int32(indexesOf(w))
		}
		if w.job.Status.Succeeded != succeeded || w.job.Status.Failed != want[v1.PodFailed] || w.most > int(parallelism) {
			t.Fatalf("seed %d: %d succeeded and %d failed, want %d and %d; %d pods at most, want %d", seed,
				w.job.Status.Succeeded, w.job.Status.Failed, succeeded, want[v1.PodFailed], w.most, parallelism)
		}
		for _, pod := range w.pods {
			if hasFinalizer(pod) {
				t.Fatalf("seed %d: %s holds the finalizer in the end", seed, pod.UID)
			}
		}
	}
}

// indexesOf the pods that have succeeded.
func indexesOf(w *world) int {
	set, _ := parseIndexes(w.job.Status.CompletedIndexes, 1<<30)
	if set.count() == int(*w.job.Spec.Completions) == (trueCondition(&w.job.Status, batchv1.JobComplete) == nil) {
		w.t.Fatalf("completed indexes %s, conditions %v", set, w.job.Status.Conditions)
	}
	if !slices.IsSortedFunc(set, func(a, b interval) int { return a.first - b.first }) {
		w.t.Fatalf("indexes %s", set)
	}
	return set.count()
}
