package replicaset

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
)

// What becomes due without an event, a pod's availability or a count that was
// held back, is not forgotten because other pods are refused.
func TestReconcile_ComesBackBesideAFailure(t *testing.T) {
	labels := map[string]string{"app": "web"}
	for name, test := range map[string]struct {
		minReadySeconds int32
		stored          appsv1.ReplicaSetStatus
		want            time.Duration
		writes          int
	}{
		"a pod becomes available": {10, appsv1.ReplicaSetStatus{ReadyReplicas: 1}, 6 * time.Second, 0},
		"a count is held back":    {0, appsv1.ReplicaSetStatus{}, holdback.Longest, 0},
		"nothing becomes due":     {0, appsv1.ReplicaSetStatus{ReadyReplicas: 1, AvailableReplicas: 1}, 0, 0},
		"something urgent":        {10, appsv1.ReplicaSetStatus{ReadyReplicas: 2}, 6 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			api := &fake.Clientset{}
			api.AddReactor("create", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(apischema.GroupResource{Resource: "pods"}, "", errors.New("quota"))
			})
			api.AddReactor("update", "replicasets", func(a kubetesting.Action) (bool, runtime.Object, error) {
				return true, a.(kubetesting.UpdateAction).GetObject(), nil
			})
			test.stored.Replicas, test.stored.FullyLabeledReplicas = 2, 2
			test.stored.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: v1.ConditionTrue, Reason: "FailedCreate"}}
			rs := &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "web"},
				Spec: appsv1.ReplicaSetSpec{
					Replicas:        ptr.To[int32](3),
					MinReadySeconds: test.minReadySeconds,
					Selector:        &metav1.LabelSelector{MatchLabels: labels},
					Template:        v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
				},
				Status: test.stored,
			}
			e := testEngine(false)
			e.kind = replicaSets{api}
			e.control = podcontrol.Control{Client: api, Events: &record.FakeRecorder{}}
			e.clock = clocktesting.NewFakePassiveClock(now)
			e.held = holdback.NewBook()
			e.unsure = unsettled.New(nil, e.clock)
			e.objects = cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers())
			e.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers())
			if err := e.objects.Add(rs); err != nil {
				t.Fatal(err)
			}
			for podName, ready := range map[string]bool{"web-1": true, "web-2": false} {
				p := pod(labels, ready, 4*time.Second)
				p.Namespace, p.Name = "a", podName
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, e.kind.GroupVersionKind())}
				if err := e.pods.Add(p); err != nil {
					t.Fatal(err)
				}
			}
			result, err := e.reconcile(t.Context(), web)
			if !apierrors.IsForbidden(err) {
				t.Errorf("error %v, want the refusal", err)
			}
			if result.RequeueAfter != test.want {
				t.Errorf("comes back after %s, want %s", result.RequeueAfter, test.want)
			}
			writes := 0
			for _, action := range api.Actions() {
				if action.Matches("update", "replicasets/status") {
					writes++
				}
			}
			if writes != test.writes {
				t.Errorf("%d writes of the status, want %d", writes, test.writes)
			}
		})
	}
}

// An orphan that cannot be judged is not made up for by another pod: the owner
// may be gone, and the garbage collector may have made the orphan on purpose.
func TestReconcile_CreatesNothingBesideAnOrphanOfADeletedOwner(t *testing.T) {
	labels := map[string]string{"app": "web"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
	live := rs.DeepCopy()
	live.DeletionTimestamp, live.Finalizers = &metav1.Time{Time: now}, []string{metav1.FinalizerOrphanDependents}
	api := &fake.Clientset{}
	api.AddReactor("get", "replicasets", func(kubetesting.Action) (bool, runtime.Object, error) { return true, live, nil })
	e := testEngine(false)
	e.kind = replicaSets{api}
	e.control = podcontrol.Control{Client: api, Events: &record.FakeRecorder{}}
	e.clock = clocktesting.NewFakePassiveClock(now)
	e.held = holdback.NewBook()
	e.unsure = unsettled.New(nil, e.clock)
	e.objects = cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers())
	e.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers())
	orphan := pod(labels, true, time.Minute)
	orphan.Namespace, orphan.Name = "a", "orphan"
	if err := errors.Join(e.objects.Add(rs), e.pods.Add(orphan)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.reconcile(t.Context(), web); err == nil || !strings.Contains(err.Error(), "can't adopt") {
		t.Errorf("error %v, want that it cannot adopt", err)
	}
	for _, action := range api.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("request %v", action)
		}
	}
}
