package telemetry

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// recorded remembers events as text.
type recorded struct{ lines []string }

func (r *recorded) Event(_ runtime.Object, _, reason, message string) {
	r.lines = append(r.lines, reason+" "+message)
}

func (r *recorded) Eventf(o runtime.Object, t, reason, format string, args ...any) {
	r.Event(o, t, reason, fmt.Sprintf(format, args...))
}

func (r *recorded) AnnotatedEventf(_ runtime.Object, annotations map[string]string, _, reason, format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf("%s %s ×%s", reason, fmt.Sprintf(format, args...), annotations[countAnnotation]))
}

func TestBursts(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", UID: "2"}}
	created := func(from, to int) func(*burstRecorder) {
		return func(r *burstRecorder) {
			for i := from; i <= to; i++ {
				r.Eventf(pod, corev1.EventTypeNormal, "Created", "pod-%d", i)
			}
		}
	}
	wait := func(d time.Duration) func(*burstRecorder) {
		return func(*burstRecorder) { time.Sleep(d); synctest.Wait() }
	}
	for name, c := range map[string]struct {
		steps []func(*burstRecorder)
		want  []string
	}{
		"the first is passed on at once":      {[]func(*burstRecorder){created(1, 20)}, []string{"Created pod-1"}},
		"few are passed on one by one":        {[]func(*burstRecorder){created(1, 3), wait(2 * time.Second)}, []string{"Created pod-1", "Created pod-2", "Created pod-3"}},
		"many are combined":                   {[]func(*burstRecorder){created(1, 20), wait(2 * time.Second)}, []string{"Created pod-1", "Created (combined from similar events): pod-20 ×19"}},
		"a slow sequence is not touched":      {[]func(*burstRecorder){created(1, 1), wait(1100 * time.Millisecond), created(2, 2)}, []string{"Created pod-1", "Created pod-2"}},
		"a burst that goes on stays combined": {[]func(*burstRecorder){created(1, 10), wait(time.Second), created(11, 20), wait(3 * time.Second)}, []string{"Created pod-1", "Created (combined from similar events): pod-10 ×9", "Created (combined from similar events): pod-20 ×10"}},
		"a stream is told of ever less often": {[]func(*burstRecorder){created(1, 3), wait(time.Second), created(4, 6), wait(time.Second), created(7, 9), wait(time.Second), created(10, 12), wait(3 * time.Second), created(13, 21), wait(time.Second)}, []string{"Created pod-1", "Created pod-2", "Created pod-3", "Created (combined from similar events): pod-9 ×6", "Created (combined from similar events): pod-21 ×12"}},
		"another object is another burst": {[]func(*burstRecorder){created(1, 1), func(r *burstRecorder) {
			r.Event(other, corev1.EventTypeNormal, "Created", "other")
		}}, []string{"Created pod-1", "Created other"}},
		"the end passes on what was held back": {[]func(*burstRecorder){created(1, 2), (*burstRecorder).flush, created(3, 3)}, []string{"Created pod-1", "Created pod-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := &recorded{}
				r := newBurstRecorder(next)
				for _, step := range c.steps {
					step(r)
				}
				if !slices.Equal(next.lines, c.want) {
					t.Errorf("got %q, want %q", next.lines, c.want)
				}
				r.flush()
			})
		})
	}
}

func TestCombinedEventHasItsCount(t *testing.T) {
	event := &corev1.Event{Count: 1, ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{countAnnotation: "19"}}}
	takeCount(event)
	if event.Count != 19 || len(event.Annotations) != 0 {
		t.Errorf("count %d, annotations %v", event.Count, event.Annotations)
	}
}
