package podstatus

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

var (
	begin = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	later = metav1.NewTime(begin.Add(time.Hour))
)

// twiceNamed has what cannot be merged in its spec.
func twiceNamed() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "1", Generation: 3},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}},
			Ports: []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80}},
		}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*v1.PodStatus)
		want   string // empty: no request
	}{
		{"nothing", func(*v1.PodStatus) {}, ""},
		{"the same value", func(s *v1.PodStatus) { s.Phase = v1.PodRunning }, ""},
		{"a phase", func(s *v1.PodStatus) { s.Phase = v1.PodFailed }, `{"metadata":{"uid":"1"},"status":{"phase":"Failed"}}`},
		{"one condition of two", func(s *v1.PodStatus) {
			SetCondition(s, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: begin})
		}, `{"metadata":{"uid":"1"},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"DisruptionTarget"}],
			"conditions":[{"type":"DisruptionTarget","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pod := twiceNamed()
			client := fake.NewClientset(pod)
			if err := Patch(t.Context(), client, pod, test.change); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(twiceNamed(), pod); diff != "" {
				t.Errorf("the pod itself was changed:\n%s", diff)
			}
			actions := client.Actions()
			if test.want == "" {
				if len(actions) != 0 {
					t.Errorf("sent %v", actions)
				}
				return
			}
			if len(actions) != 1 {
				t.Fatalf("%d requests, want 1", len(actions))
			}
			sent, ok := actions[0].(kubetesting.PatchAction)
			if !ok || sent.GetSubresource() != "status" {
				t.Fatalf("sent %v", actions[0])
			}
			var got, want any
			if err := json.Unmarshal(sent.GetPatch(), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetCondition(t *testing.T) {
	t.Parallel()
	condition := func(status v1.ConditionStatus, at metav1.Time, reason string) v1.PodCondition {
		return v1.PodCondition{Type: v1.DisruptionTarget, Status: status, LastTransitionTime: at, Reason: reason}
	}
	other := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse}
	for _, test := range []struct {
		name       string
		there, set v1.PodCondition
		want       v1.PodCondition
	}{
		{"changed", condition(v1.ConditionFalse, begin, "Old"), condition(v1.ConditionTrue, later, "New"), condition(v1.ConditionTrue, later, "New")},
		{"as it was", condition(v1.ConditionTrue, begin, "Old"), condition(v1.ConditionTrue, later, "New"), condition(v1.ConditionTrue, begin, "New")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			status := v1.PodStatus{Conditions: []v1.PodCondition{other, test.there}}
			SetCondition(&status, test.set)
			if diff := cmp.Diff([]v1.PodCondition{other, test.want}, status.Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("new", func(t *testing.T) {
		t.Parallel()
		status := v1.PodStatus{Conditions: []v1.PodCondition{other}}
		set := condition(v1.ConditionTrue, later, "New")
		SetCondition(&status, set)
		if diff := cmp.Diff([]v1.PodCondition{other, set}, status.Conditions); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
	})
}
