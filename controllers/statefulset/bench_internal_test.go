package statefulset

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// bench is a controller over caches that the test fills.
type bench struct {
	*statefulSetController
	client *fake.Clientset
	group  *work.Group
	// reconciled are the keys that the queue handed out.
	reconciled chan work.ObjectName
}

// newBench returns a bench whose cache holds set. Its queue, once started, only
// tells which keys it hands out.
func newBench(t *testing.T, set *appsv1.StatefulSet) *bench {
	t.Helper()
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{client: fake.NewClientset(set.DeepCopy()), reconciled: make(chan work.ObjectName, 100)}
	b.statefulSetController = &statefulSetController{
		client:    b.client,
		events:    record.NewFakeRecorder(100),
		logger:    slog.New(slog.NewTextHandler(t.Output(), nil)),
		clock:     clock.RealClock{}, // that of the bubble, in a bubble
		metrics:   metrics,
		unsure:    unsettled.New(func(context.Context, time.Time) error { return nil }, clock.RealClock{}),
		held:      holdback.NewBook(),
		doomed:    podcontrol.NewDoomed(),
		sets:      cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Selectors(selectorOf)),
		pods:      cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers()),
		claims:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		revisions: cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers()),

		maxUnavailable: true, semanticRevisions: true,
	}
	if err := b.sets.Add(set); err != nil {
		t.Fatal(err)
	}
	b.group = work.NewGroup(work.GroupOptions{Name: "statefulset", Logger: b.logger})
	b.queue = work.NewQueue(b.group, work.Options[work.ObjectName]{
		Name: "statefulset",
		Reconcile: func(_ context.Context, key work.ObjectName) (work.Result, error) {
			b.reconciled <- key
			return work.Result{}, nil
		},
	})
	t.Cleanup(func() {
		if err := b.group.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// selecting is a set that can be reconciled.
func selecting(replicas int32) *appsv1.StatefulSet {
	set := testSet(replicas)
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Template.Labels = map[string]string{"app": "web"}
	return set
}

// The end of a pod that has a name of the set's scheme frees that name,
// whosever the pod was: the next try to use it does not wait for its back-off.
func TestAFreedNameBringsTheSetBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		obj  any
		want bool
	}{
		{"an orphan", testPod(0, ""), true},
		{"beyond the replicas", testPod(7, ""), true},
		{"missed at first", cache.DeletedFinalStateUnknown{Obj: testPod(0, "")}, true},
		{"of an earlier set", func() *v1.Pod {
			pod := testPod(0, "")
			earlier := testSet(1)
			earlier.UID = "earlier"
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(earlier, controllerKind)}
			return pod
		}(), true},
		{"of another name", &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0"}}, false},
		{"of another namespace", &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web-0"}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, selecting(1))
				b.podHandler().OnDelete(test.obj)
				b.group.Start(t.Context(), 1)
				synctest.Wait()
				if got := len(b.reconciled) == 1; got != test.want {
					t.Errorf("the set comes back: %t", got)
				}
			})
		})
	}
}

// What becomes available by the passing of time does so although another pod is refused.
func TestAvailabilityDoesNotWaitForARefusedPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := selecting(2)
		inParallel(set)
		set.Spec.MinReadySeconds = 30
		b := newBench(t, set)
		pod := testPod(0, "ready")
		pod.Labels["app"] = "web"
		pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, controllerKind)}
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-10 * time.Second))
		if err := b.pods.Add(pod); err != nil {
			t.Fatal(err)
		}
		refused := errors.New("refused")
		b.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		result, err := b.reconcile(t.Context(), testKey)
		if !errors.Is(err, refused) || result.RequeueAfter != 20*time.Second {
			t.Errorf("back after %s, error %v; want 20s and the refusal", result.RequeueAfter, err)
		}
	})
}
