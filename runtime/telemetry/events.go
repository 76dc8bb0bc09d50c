package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
)

// Events sends events to the API server, and to the log at verbosity 3.
// Each component has a queue of its own, so that one with many events does not
// hold up the others; bursts are combined, see burstRecorder, and repeated events are
// joined and limited by client-go's defaults. Events that this process may not write, because it does not lead,
// are dropped.
type Events struct {
	logger *slog.Logger
	sink   *eventSink
	stop   context.CancelFunc

	mu         sync.Mutex
	components map[string]*component
	ended      bool
}

// NewEvents makes the source of recorders. clientset decides which writes may
// pass. Shutdown must be called.
func NewEvents(clientset kubernetes.Interface, logger *slog.Logger) *Events {
	ctx, cancel := context.WithCancel(context.Background())
	return &Events{
		logger:     logger,
		stop:       cancel,
		components: map[string]*component{},
		sink: &eventSink{
			ctx:     ctx,
			events:  clientset.CoreV1().Events(metav1.NamespaceAll),
			logger:  logger,
			markers: map[string]chan struct{}{},
		},
	}
}

// Recorder of events whose source component is name. It is the same one for
// every call with that name.
func (e *Events) Recorder(name string) record.EventRecorder {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.components[name]; ok {
		return c.bursts
	}
	if e.ended {
		return &record.FakeRecorder{} // drops everything
	}
	c := &component{name: name, sink: e.sink, logger: e.logger}
	c.bursts = newBurstRecorder(c)
	e.components[name] = c
	return c.bursts
}

// Shutdown sends what is queued until ctx ends, then stops. Events recorded
// afterwards are dropped. To be called once.
func (e *Events) Shutdown(ctx context.Context) {
	e.mu.Lock()
	e.ended = true
	components := e.components
	e.mu.Unlock()

	var flushing sync.WaitGroup
	for name, c := range components {
		c.bursts.flush()
		flushing.Go(func() {
			if recorder, used := c.end(); used && !e.flush(ctx, name, recorder) {
				e.logger.Warn("not all events were sent before the end", "component", name)
			}
		})
	}
	flushing.Wait()
	e.stop()
	for _, c := range components {
		c.shutdown()
	}
}

// markerReason is the reason of an event that is never sent.
const markerReason = "wheelhouse.dev/EndOfQueue"

// markerInterval is how often a marker is put into the queue again, since a
// full queue drops it as it drops any event.
const markerInterval = 50 * time.Millisecond

// flush waits until everything queued has reached the sink: until a marker
// queued behind it does.
func (e *Events) flush(ctx context.Context, name string, recorder record.EventRecorder) bool {
	passed := e.sink.expect(name)
	again := time.NewTicker(markerInterval)
	defer again.Stop()
	for i := 0; ; i++ {
		// Each is of another object, or they would be limited as one.
		object := &corev1.ObjectReference{Name: strconv.Itoa(i)}
		recorder.Event(object, corev1.EventTypeNormal, markerReason, name)
		select {
		case <-passed:
			return true
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
}

// eventSink writes events.
type eventSink struct {
	// ctx ends the requests under way at the end of Shutdown: the interface
	// record.EventSink has no contexts.
	ctx    context.Context
	events typedcorev1.EventInterface
	logger *slog.Logger

	mu sync.Mutex
	// markers that are awaited, by component.
	markers map[string]chan struct{}
}

var _ record.EventSink = (*eventSink)(nil)

func (s *eventSink) expect(component string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := make(chan struct{})
	s.markers[component] = passed
	return passed
}

func (s *eventSink) isMarker(event *corev1.Event) bool {
	if event.Reason != markerReason {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if passed, ok := s.markers[event.Source.Component]; ok {
		close(passed)
		delete(s.markers, event.Source.Component)
	}
	return true
}

// Create implements record.EventSink.
func (s *eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if s.isMarker(event) {
		return event, nil
	}
	takeCount(event)
	return s.result(event, func() (*corev1.Event, error) {
		return s.events.CreateWithEventNamespaceWithContext(s.ctx, event)
	})
}

// Update implements record.EventSink.
func (s *eventSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.result(event, func() (*corev1.Event, error) {
		return s.events.UpdateWithEventNamespaceWithContext(s.ctx, event)
	})
}

// Patch implements record.EventSink.
func (s *eventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	if s.isMarker(event) {
		return event, nil
	}
	return s.result(event, func() (*corev1.Event, error) {
		return s.events.PatchWithEventNamespaceWithContext(s.ctx, event, data)
	})
}

// result takes an event that may not be written for done: trying again for two
// minutes, as the broadcaster would, would hold up those that come when this
// process leads again.
func (s *eventSink) result(event *corev1.Event, write func() (*corev1.Event, error)) (*corev1.Event, error) {
	written, err := write()
	if errors.Is(err, client.ErrFenced) {
		s.logger.Debug("event dropped, this process does not lead", "reason", event.Reason, "err", err)
		return event, nil
	}
	return written, err
}
