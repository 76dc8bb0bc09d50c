package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
)

// eventVerbosity is where events appear in the log.
const eventVerbosity = 3

// component is one source of events: it logs them, and passes them on to
// client-go's recorder. That one has queues for a thousand events, so it is made
// for the first event: most components of a process never have any.
type component struct {
	name   string
	sink   record.EventSink
	logger *slog.Logger
	bursts *burstRecorder

	mu          sync.Mutex
	ended       bool
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

var _ record.EventRecorder = (*component)(nil)

// Event implements record.EventRecorder.
func (c *component) Event(object runtime.Object, eventType, reason, message string) {
	c.log(object, "", eventType, reason, message)
	c.next().Event(object, eventType, reason, message)
}

// Eventf implements record.EventRecorder.
func (c *component) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	c.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (c *component) AnnotatedEventf(
	object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any,
) {
	message := fmt.Sprintf(format, args...)
	c.log(object, annotations[countAnnotation], eventType, reason, message)
	c.next().AnnotatedEventf(object, annotations, eventType, reason, "%s", message)
}

func (c *component) log(object runtime.Object, count, eventType, reason, message string) {
	const level = slog.Level(-eventVerbosity)
	if !c.logger.Enabled(context.Background(), level) {
		return
	}
	about, err := reference.GetReference(scheme.Scheme, object)
	if err != nil {
		return // the recorder says so
	}
	c.logger.Log(context.Background(), level, "event", "count", cmp.Or(count, "1"),
		"type", eventType, "reason", reason, "message", message, "component", c.name,
		"kind", about.Kind, "object", klog.KRef(about.Namespace, about.Name).String())
}

// next is client-go's recorder; after the end one that drops everything.
func (c *component) next() record.EventRecorder {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return &record.FakeRecorder{}
	case c.recorder == nil:
		// A context that cannot end costs no goroutine; it carries the logger.
		log := logr.FromSlogHandler(c.logger.Handler())
		c.broadcaster = record.NewBroadcaster(record.WithContext(klog.NewContext(context.Background(), log)))
		c.broadcaster.StartRecordingToSink(c.sink)
		c.recorder = c.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: c.name}).WithLogger(log)
	}
	return c.recorder
}

// end lets no more events pass. It returns the recorder of those that did, and
// false if there were none.
func (c *component) end() (record.EventRecorder, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.recorder, c.recorder != nil
}

// shutdown stops what sends the events, after end.
func (c *component) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broadcaster != nil {
		c.broadcaster.Shutdown()
	}
}
