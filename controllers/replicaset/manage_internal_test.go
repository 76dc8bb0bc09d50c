package replicaset

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

// One reconcile creates or deletes no more than the burst.
func TestManage_TakesPartsOfALargeDifference(t *testing.T) {
	for name, test := range map[string]struct {
		active, wanted, changed int
		verb                    string
	}{
		"many to create": {0, burst + 100, burst, "create"},
		"some to create": {5, 12, 7, "create"},
		"many to delete": {burst + 100, 0, burst, "delete"},
		"some to delete": {12, 5, 7, "delete"},
		"nothing to do":  {5, 5, 0, "create"},
	} {
		t.Run(name, func(t *testing.T) {
			metrics, err := newMetrics(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			api := &fake.Clientset{}
			api.AddReactor("*", "pods", func(kubetesting.Action) (bool, runtime.Object, error) { return true, &v1.Pod{}, nil })
			e := testEngine(false)
			e.control = podcontrol.Control{Client: api, Events: &record.FakeRecorder{}}
			e.metrics, e.clock = metrics, clock.RealClock{}
			labels := map[string]string{"app": "web"}
			rs := &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "web"},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: ptr.To(int32(test.wanted)),
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
				},
			}
			var active []*v1.Pod
			for i := range test.active {
				p := pod(labels, true, time.Minute)
				p.Name = fmt.Sprint("web-", i)
				active = append(active, p)
			}
			made := e.manage(t.Context(), web, rs, active)
			requests := 0
			for _, action := range api.Actions() {
				if action.Matches(test.verb, "pods") {
					requests++
				}
			}
			if made.err != nil || made.changed != test.changed || requests != test.changed || len(api.Actions()) != requests {
				t.Errorf("%d changed, %d of %d requests to %s: %v", made.changed, requests, len(api.Actions()), test.verb, made.err)
			}
		})
	}
}

// Pods that their own owner would release are not made.
func TestCreate_RefusesPodsThatDoNotMatch(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{
		"no selector":      nil,
		"another label":    {MatchLabels: map[string]string{"app": "db"}},
		"invalid selector": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			api := &fake.Clientset{}
			e := testEngine(false)
			e.control = podcontrol.Control{Client: api, Events: &record.FakeRecorder{}}
			rs := &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "web"},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: ptr.To[int32](3),
					Selector: selector,
					Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
				},
			}
			made := e.manage(t.Context(), web, rs, nil)
			if made.err == nil || made.reason != podcontrol.FailedCreate || len(api.Actions()) > 0 {
				t.Errorf("error %v for reason %s, requests %v", made.err, made.reason, api.Actions())
			}
		})
	}
}
