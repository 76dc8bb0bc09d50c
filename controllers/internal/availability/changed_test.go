package availability_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

func TestChanged(t *testing.T) {
	t.Parallel()
	base := func() *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Status: v1.PodStatus{Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
			}},
		}
	}
	for _, test := range []struct {
		name   string
		change func(*v1.Pod)
		want   bool
	}{
		{"nothing", func(*v1.Pod) {}, false},
		{"annotations, addresses, other conditions", func(p *v1.Pod) {
			p.Annotations = map[string]string{"a": "b"}
			p.Status.PodIP = "10.0.0.1"
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue})
		}, false},
		{"probe time", func(p *v1.Pod) { p.Status.Conditions[0].LastProbeTime = metav1.NewTime(now) }, false},
		{"the same instant elsewhere", func(p *v1.Pod) {
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour).In(time.FixedZone("x", 3600)))
		}, false},
		{"phase", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, true},
		{"labels", func(p *v1.Pod) { p.Labels = map[string]string{"app": "db"} }, true},
		{"deletion", func(p *v1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }, true},
		{"not ready", func(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionFalse }, true},
		{"ready since", func(p *v1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now) }, true},
	} {
		changed := base()
		test.change(changed)
		if got := availability.Changed(base(), changed); got != test.want {
			t.Errorf("%s: changed %t", test.name, got)
		}
	}
}
