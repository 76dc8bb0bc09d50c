package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
)

const (
	// burstWindow is how long events like one that was just passed on are held
	// back. It doubles as long as there are such events, up to burstWindowMax, so
	// that a stream of them costs little more than a burst.
	burstWindow    = time.Second
	burstWindowMax = 16 * time.Second
	// burstSingles is how many events that were held back first are still passed
	// on one by one.
	burstSingles = 4
	// combinedPrefix is client-go's, so that what finds its combined events
	// finds these too.
	combinedPrefix = "(combined from similar events): "
	// countAnnotation tells the sink how many events a combined one stands for.
	countAnnotation = "wheelhouse.dev/event-count"
)

// burstRecorder joins the events of a burst. A controller that makes a hundred
// pods at once says so a hundred times; each event is a request. The first
// is passed on at once. What follows on the same object, of the same type and
// with the same reason within a second, is passed on when the second is over:
// one by one if they are few, else as one event with their number and the last
// one's message. If they do not end, they are held back for longer each time.
// Events that come at a slower pace are not touched.
type burstRecorder struct {
	next record.EventRecorder

	mu     sync.Mutex
	bursts map[burstKey]*burst
	ended  bool
}

var _ record.EventRecorder = (*burstRecorder)(nil)

func newBurstRecorder(next record.EventRecorder) *burstRecorder {
	return &burstRecorder{next: next, bursts: map[burstKey]*burst{}}
}

// burstKey is what the events of a burst have in common.
type burstKey struct {
	uid, kind, namespace, name string
	eventType, reason          string
}

// burst is what was held back since the last event was passed on.
type burst struct {
	// object is a reference, since its owner may change the object meanwhile.
	object  *corev1.ObjectReference
	timer   *time.Timer
	window  time.Duration
	count   int
	singles []string
	last    string
}

// Event implements record.EventRecorder.
func (r *burstRecorder) Event(object runtime.Object, eventType, reason, message string) {
	about, err := reference.GetReference(scheme.Scheme, object)
	if err != nil || !r.hold(keyOf(about, eventType, reason), about, message) {
		r.next.Event(object, eventType, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (r *burstRecorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder. Annotated events are passed on.
func (r *burstRecorder) AnnotatedEventf(
	object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any,
) {
	r.next.AnnotatedEventf(object, annotations, eventType, reason, format, args...)
}

// hold keeps the message back if it is part of a burst; else it begins one.
func (r *burstRecorder) hold(key burstKey, object *corev1.ObjectReference, message string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return true // dropped
	}
	b, ok := r.bursts[key]
	if !ok {
		r.bursts[key] = &burst{object: object, window: burstWindow, timer: time.AfterFunc(burstWindow, func() { r.over(key) })}
		return false
	}
	b.count++
	b.last = message
	most := burstSingles
	if b.window > burstWindow {
		most = 1 // the stream has been told of
	}
	if len(b.singles) < most {
		b.singles = append(b.singles, message)
	}
	return true
}

// over passes on what was held back. If that was anything, the burst may not be at its end.
func (r *burstRecorder) over(key burstKey) {
	r.mu.Lock()
	b, ok := r.bursts[key]
	if !ok {
		r.mu.Unlock()
		return
	}
	held := *b
	if held.count == 0 || r.ended {
		delete(r.bursts, key)
	} else {
		b.count, b.singles, b.last = 0, nil, ""
		b.window = min(2*b.window, burstWindowMax)
		b.timer.Reset(b.window)
	}
	r.mu.Unlock()
	r.passOn(key, held)
}

func (r *burstRecorder) passOn(key burstKey, held burst) {
	same := !slices.ContainsFunc(held.singles, func(m string) bool { return m != held.last })
	switch {
	case held.count == 0:
	case held.count <= len(held.singles):
		for _, message := range held.singles {
			r.next.Event(held.object, key.eventType, key.reason, message)
		}
	case same:
		// client-go counts equal events by itself.
		r.next.Event(held.object, key.eventType, key.reason, held.last)
	default:
		r.next.AnnotatedEventf(held.object, map[string]string{countAnnotation: strconv.Itoa(held.count)},
			key.eventType, key.reason, "%s%s", combinedPrefix, held.last)
	}
}

// flush passes on everything that is held back, and drops what comes later.
func (r *burstRecorder) flush() {
	r.mu.Lock()
	r.ended = true
	bursts := r.bursts
	r.bursts = map[burstKey]*burst{}
	r.mu.Unlock()
	for key, b := range bursts {
		b.timer.Stop()
		r.passOn(key, *b)
	}
}

func keyOf(about *corev1.ObjectReference, eventType, reason string) burstKey {
	return burstKey{
		uid: string(about.UID), kind: about.Kind, namespace: about.Namespace, name: about.Name,
		eventType: eventType, reason: reason,
	}
}

// takeCount gives a combined event its number, and hides how it came here.
func takeCount(event *corev1.Event) {
	text, ok := event.Annotations[countAnnotation]
	if !ok {
		return
	}
	// The map is shared with the copy that goes to the log.
	event.Annotations = maps.Clone(event.Annotations)
	delete(event.Annotations, countAnnotation)
	if count, err := strconv.ParseInt(text, 10, 32); err == nil {
		event.Count = int32(count)
	}
}
