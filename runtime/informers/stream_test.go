package informers

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// runStream of a metadata watch that begins at version 10. The returned function stops
// it and waits for its end.
func runStream(ctx context.Context, withState bool) (*stream, *watch.FakeWatcher, func()) {
	upstream := watch.NewFake()
	s := &source{pool: NewPool(Options{Logger: slog.New(slog.DiscardHandler)}), requests: metadataRequests{}}
	s.health = health{outage: &s.pool.outage, logger: s.pool.o.Logger}
	st := newStream(ctx, s, upstream, withState, "10")
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.run()
	}()
	return st, upstream, func() { st.Stop(); <-done }
}

func object(version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}
}

func endOfState(version string) *metav1.PartialObjectMetadata {
	end := object(version)
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return end
}

// next event's type and version; "" when the watch has ended.
func next(s *stream) string {
	event, ok := <-s.ResultChan()
	if !ok {
		return ""
	}
	return string(event.Type) + " " + event.Object.(*metav1.PartialObjectMetadata).ResourceVersion
}

func TestStreamLeavesOutWhatIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, upstream, stop := runStream(t.Context(), false)
		defer stop()
		go func() {
			s.do(t.Context(), func() {
				s.skip = "20"
				s.bookmark("20")
			})
			upstream.Add(object("15"))
			upstream.Action(watch.Bookmark, object("18"))
			upstream.Delete(object("20"))
			upstream.Add(object("21"))
		}()
		if got := next(s); got != "BOOKMARK 20" {
			t.Errorf("got %q, want the bookmark", got)
		}
		if got := next(s); got != "ADDED 21" {
			t.Errorf("got %q, want the first event after the bookmark", got)
		}
	})
}

func TestStreamKnowsItsVersionAfterTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, upstream, stop := runStream(t.Context(), true)
		defer stop()
		type position struct {
			initial bool
			version string
		}
		at := func() (p position) {
			s.do(t.Context(), func() { p = position{s.initial, s.version} })
			return p
		}
		for _, step := range []struct {
			event watch.EventType
			obj   *metav1.PartialObjectMetadata
			want  position
		}{
			{watch.Added, object("40"), position{true, "10"}},
			{watch.Added, object("30"), position{true, "10"}},
			{watch.Bookmark, endOfState("50"), position{false, "50"}},
			{watch.Modified, object("60"), position{false, "60"}},
		} {
			go upstream.Action(step.event, step.obj)
			next(s)
			if got := at(); got != step.want {
				t.Errorf("after %s %s: %+v, want %+v", step.event, step.obj.ResourceVersion, got, step.want)
			}
		}
	})
}

// The reflector lists everything again after a watch that brought nothing in
// less than a second.
func TestStreamOutlastsShortWatch(t *testing.T) {
	for _, test := range []struct {
		name   string
		state  bool
		events []string
		want   time.Duration
	}{
		{name: "nothing came", want: time.Second},
		{name: "an event came", events: []string{"11"}},
		{name: "nothing came after the state", state: true, want: time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, upstream, stop := runStream(t.Context(), test.state)
				defer stop()
				go func() {
					if test.state {
						upstream.Action(watch.Bookmark, endOfState("10"))
					}
					for _, version := range test.events {
						upstream.Add(object(version))
					}
					upstream.Stop()
				}()
				began := time.Now()
				for event := next(s); event != ""; event = next(s) {
					t.Logf("event %s", event)
				}
				if got := time.Since(began); got != test.want {
					t.Errorf("ended after %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestFinishedStreamIsNoShortWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, stop := runStream(t.Context(), false)
		defer stop()
		go s.finish(t.Context())
		if got := next(s); got != "BOOKMARK 10" {
			t.Errorf("got %q, want a bookmark of where it was", got)
		}
		if got := next(s); got != "" {
			t.Errorf("got %q, want the end", got)
		}
		s.finish(t.Context()) // an ended one is none of its business
	})
}

func TestCancelledStreamEndsWithStopOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, upstream, stop := runStream(ctx, false)
		cancel()
		upstream.Error(&metav1.Status{Message: "context canceled"})
		synctest.Wait()
		select {
		case event := <-s.ResultChan():
			t.Errorf("event %v of a cancelled watch", event)
		default:
		}
		stop()
		if got := next(s); got != "" {
			t.Errorf("got %q after the end", got)
		}
	})
}
