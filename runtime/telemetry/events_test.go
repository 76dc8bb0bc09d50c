package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

var quiet = slog.New(slog.DiscardHandler)

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// What was recorded is in the API server when Shutdown returns.
func TestEventsReachTheAPIServer(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	namespace := cp.Namespace(t)
	clientset, err := kubernetes.NewForConfig(cp.AdminConfig())
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", UID: "1"}}

	var log lockedBuffer
	logging := telemetry.NewLogging(&log, false)
	must(t, logging.SetVerbosity(3))
	events := telemetry.NewEvents(clientset, logging.Logger("events"))
	began := time.Now()
	for i := range 20 {
		events.Recorder("deployment-controller").Eventf(pod, corev1.EventTypeNormal, "ScalingReplicaSet", "number %d", i)
	}
	took := time.Since(began)
	events.Recorder("replicaset-controller").Event(pod, corev1.EventTypeWarning, "FailedCreate", "m")
	events.Recorder("replicaset-controller").Event(pod, corev1.EventTypeWarning, "FailedCreate", "m")
	events.Shutdown(within(t, time.Minute))

	list, err := clientset.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	single, combined := 0, 0
	for _, e := range list.Items {
		switch {
		case e.Source.Component == "deployment-controller" && e.ReportingController == "deployment-controller" &&
			strings.HasPrefix(e.Message, "number"):
			single++
		case strings.HasPrefix(e.Message, "(combined from similar events): number"):
			combined += int(e.Count)
		case e.Source.Component == "replicaset-controller":
			if e.Count != 2 || e.Type != corev1.EventTypeWarning {
				t.Errorf("%+v", e)
			}
		default:
			t.Errorf("unexpected %+v", e)
		}
	}
	text := log.take()
	if took > time.Second/2 {
		t.Logf("it took %s to record the events, which is no burst", took)
		return
	}
	// A burst becomes its first event and one with the number of the others.
	if single != 1 || combined != 19 {
		t.Errorf("%d single and %d combined events of 20", single, combined)
	}
	if strings.Count(text, `"reason":"ScalingReplicaSet"`) != 2 || !strings.Contains(text, `"count":"19"`) || strings.Contains(text, "EndOfQueue") {
		t.Errorf("logged %s", text)
	}
}

func TestRecorderIsOnePerComponent(t *testing.T) {
	events := telemetry.NewEvents(fake.NewClientset(), quiet)
	defer events.Shutdown(within(t, time.Minute))
	if events.Recorder("a") != events.Recorder("a") || events.Recorder("a") == events.Recorder("b") {
		t.Error("recorders are not one per component")
	}
}

func TestRecordingAfterShutdownIsHarmless(t *testing.T) {
	clientset := fake.NewClientset()
	events := telemetry.NewEvents(clientset, quiet)
	before := events.Recorder("a")
	events.Shutdown(within(t, time.Minute))
	before.Event(&corev1.ObjectReference{Name: "o", Namespace: "n"}, corev1.EventTypeNormal, "R", "m")
	events.Recorder("b").Event(&corev1.ObjectReference{Name: "o", Namespace: "n"}, corev1.EventTypeNormal, "R", "m")
	if actions := clientset.Actions(); len(actions) != 0 {
		t.Errorf("sent %v", actions)
	}
}

// A process that does not lead drops its events at once, so that none comes
// late and none holds up those of the time when it leads.
func TestEventsOfAProcessThatDoesNotLeadAreDropped(t *testing.T) {
	clientset := fake.NewClientset()
	var leads atomic.Bool
	var refused atomic.Int32
	clientset.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		if leads.Load() {
			return false, nil, nil
		}
		refused.Add(1)
		return true, nil, fmt.Errorf("post: %w", client.ErrFenced)
	})
	events := telemetry.NewEvents(clientset, quiet)
	object := &corev1.ObjectReference{Name: "o", Namespace: "n", Kind: "Pod"}
	recorder := events.Recorder("a")
	recorder.Event(object, corev1.EventTypeNormal, "Before", "m")
	for deadline := time.Now().Add(time.Minute); refused.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not tried")
		}
	}
	leads.Store(true)
	recorder.Event(object, corev1.EventTypeNormal, "Leading", "m")
	recorder.Event(object, corev1.EventTypeNormal, "Before", "m") // joins the dropped one
	events.Shutdown(within(t, time.Minute))

	var sent []string
	for _, action := range clientset.Actions() {
		if create, ok := action.(clienttesting.CreateAction); ok {
			if event := create.GetObject().(*corev1.Event); event != nil {
				sent = append(sent, event.Reason)
			}
		}
	}
	if !slices.Contains(sent, "Leading") || refused.Load() != 1 {
		t.Errorf("sent %v, refused %d", sent, refused.Load())
	}
}

// hangingTransport answers nothing until the request is given up.
type hangingTransport struct{ began chan struct{} }

func (h hangingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	select {
	case h.began <- struct{}{}:
	default:
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestShutdownIsBounded(t *testing.T) {
	hanging := hangingTransport{began: make(chan struct{}, 1)}
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1", Transport: hanging})
	must(t, err)
	var log lockedBuffer
	events := telemetry.NewEvents(clientset, telemetry.NewLogging(&log, false).Logger("events"))
	events.Recorder("a").Event(&corev1.ObjectReference{Name: "o", Namespace: "n"}, corev1.EventTypeNormal, "R", "m")
	<-hanging.began
	ctx := within(t, 200*time.Millisecond)
	events.Shutdown(ctx) // the request would hang for ever
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it has ended before its time: %v", err)
	}
	if got := log.take(); !strings.Contains(got, "not all events were sent before the end") {
		t.Errorf("logged %s", got)
	}
}
