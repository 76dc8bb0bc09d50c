package statefulset

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

// Deletions that were cut off between their two steps are asked for again, and
// those that may come to their end by themselves are looked at in time.
func TestFinishDeletions(t *testing.T) {
	t.Parallel()
	since := func(ago time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-ago))) }
	for _, test := range []struct {
		name   string
		change func(*v1.Pod)
		again  time.Duration
		asked  bool
	}{
		{"not deleted", func(*v1.Pod) {}, 0, false},
		{"under way", func(pod *v1.Pod) { pod.DeletionTimestamp = since(2 * time.Second) }, 3 * time.Second, false},
		{"cut off", func(pod *v1.Pod) { pod.DeletionTimestamp = since(time.Minute) }, 0, true},
		{"for its kubelet", func(pod *v1.Pod) { pod.DeletionTimestamp, pod.Spec.NodeName = since(time.Minute), "node" }, 0, false},
		{"held", func(pod *v1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = since(time.Minute), []string{"example.com/hold"}
		}, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := testPass(testSet(2), "0: ready", "1: ready")
			test.change(p.members[1].Pod)
			client := fake.NewClientset([]runtime.Object{p.members[0].Pod.DeepCopy(), p.members[1].Pod.DeepCopy()}...)
			p.client, p.events = client, record.NewFakeRecorder(10)
			again, err := p.finishDeletions(t.Context())
			if err != nil || again != test.again {
				t.Errorf("again in %s (%v), want %s", again, err, test.again)
			}
			asked := slices.ContainsFunc(client.Actions(), func(action clienttesting.Action) bool {
				deletion, ok := action.(clienttesting.DeleteAction)
				return ok && deletion.GetName() == "web-1"
			})
			if asked != test.asked || len(client.Actions()) > 1 {
				t.Errorf("requests %v", client.Actions())
			}
		})
	}
}
