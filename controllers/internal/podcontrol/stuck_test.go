package podcontrol_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

func TestDeletionStuck(t *testing.T) {
	t.Parallel()
	deleted := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		change  func(*v1.Pod)
		after   time.Duration
		stuck   bool
		checkIn time.Duration
	}{
		{name: "long ago", after: time.Minute, stuck: true},
		{name: "just long enough", after: 5 * time.Second, stuck: true},
		{name: "may be under way", after: 2 * time.Second, checkIn: 3 * time.Second},
		{name: "no grace period stored", after: time.Minute, stuck: true,
			change: func(pod *v1.Pod) { pod.DeletionGracePeriodSeconds = nil }},
		{name: "not deleted", after: time.Minute, change: func(pod *v1.Pod) { pod.DeletionTimestamp = nil }},
		{name: "held by a finalizer", after: time.Minute, change: func(pod *v1.Pod) { pod.Finalizers = []string{"a/b"} }},
		{name: "a kubelet finishes it", after: time.Minute, change: func(pod *v1.Pod) { pod.Spec.NodeName = "a" }},
		{name: "has time to end", after: time.Minute,
			change: func(pod *v1.Pod) { pod.DeletionGracePeriodSeconds = ptr.To[int64](30) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
				DeletionTimestamp: ptr.To(metav1.NewTime(deleted)), DeletionGracePeriodSeconds: ptr.To[int64](0),
			}}
			if test.change != nil {
				test.change(pod)
			}
			if stuck, checkIn := podcontrol.DeletionStuck(pod, deleted.Add(test.after)); stuck != test.stuck || checkIn != test.checkIn {
				t.Errorf("got %t, %s; want %t, %s", stuck, checkIn, test.stuck, test.checkIn)
			}
		})
	}
}
