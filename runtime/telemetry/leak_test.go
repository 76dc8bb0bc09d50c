package telemetry_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"go.uber.org/goleak"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
	"github.com/wheelhouse-project/wheelhouse/test/goroutines"
)

func TestEventsLeaveNothingBehind(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	for range 10 {
		events := telemetry.NewEvents(fake.NewClientset(), quiet)
		for _, component := range []string{"a", "b", "c"} {
			events.Recorder(component).Event(&corev1.ObjectReference{Name: "o", Namespace: "n"}, corev1.EventTypeNormal, "R", "m")
		}
		events.Shutdown(within(t, time.Minute))
	}
	if err := goroutines.Left(ignore); err != nil {
		t.Error(err)
	}
}
