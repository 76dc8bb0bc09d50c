package informers

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// shortWatch is what client-go's reflector takes for a failure when it lasts
// no longer and brings nothing, at which it lists everything again.
const shortWatch = time.Second

// stream is a watch on its way from the server to the reflector. It knows what
// has passed, and can be held while the store is compared with the server.
type stream struct {
	// context of the request.
	context  context.Context
	source   *source
	upstream watch.Interface
	events   chan watch.Event
	// tasks run between two events.
	tasks    chan func()
	stopped  chan struct{}
	stopOnce sync.Once
	ended    chan struct{}

	// The rest belongs to the goroutine of run.

	// initial is true while the server sends the state, in no order.
	initial bool
	// version of the last event that was passed on; what the store knows once
	// it has taken in all of them.
	version string
	// skip events that are not newer than this: the store has what they lead to.
	skip string
	// silent is true until the first event is passed on since began, which is
	// when the server had sent the state: the reflector counts from there.
	silent bool
	began  time.Time
	// finished makes run end as if the server had ended the watch.
	finished bool
}

var _ watch.Interface = (*stream)(nil)

func newStream(ctx context.Context, s *source, upstream watch.Interface, withState bool, version string) *stream {
	return &stream{
		context:  ctx,
		source:   s,
		upstream: upstream,
		events:   make(chan watch.Event),
		tasks:    make(chan func()),
		stopped:  make(chan struct{}),
		ended:    make(chan struct{}),
		initial:  withState,
		version:  version,
		silent:   true,
		began:    s.pool.o.Clock.Now(),
	}
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop implements watch.Interface.
func (s *stream) Stop() { s.stopOnce.Do(func() { close(s.stopped) }) }

func (s *stream) run() {
	defer close(s.ended)
	defer close(s.events)
	defer s.upstream.Stop()
	for !s.finished {
		select {
		case <-s.stopped:
			return
		case task := <-s.tasks:
			task()
		case event, ok := <-s.upstream.ResultChan():
			if !ok {
				s.linger()
				return
			}
			s.forward(event)
		}
	}
}

func (s *stream) forward(event watch.Event) {
	if event.Type == watch.Error {
		if s.context.Err() != nil {
			s.linger()
			s.finished = true
			return
		}
		if !s.initial { // or else the reflector lists instead
			s.source.health.failed(apierrors.FromObject(event.Object))
		}
		s.send(event)
		return
	}
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		s.send(event) // the reflector reports it
		return
	}
	version := accessor.GetResourceVersion()
	if s.skip != "" {
		if older, ok := compare(version, s.skip); ok && older <= 0 {
			return
		}
	}
	if s.initial {
		s.send(event)
		if event.Type == watch.Bookmark && accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			s.initial, s.version = false, version
			s.silent, s.began = true, s.source.pool.o.Clock.Now()
		}
		return
	}
	s.version = version
	s.send(event)
}

func (s *stream) send(event watch.Event) {
	select {
	case s.events <- event:
		s.silent = false
	case <-s.stopped:
	}
}

// bookmark tells reflector and store that they are current up to version.
func (s *stream) bookmark(version string) {
	object := s.source.requests.example()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return // not possible: all examples are API objects
	}
	accessor.SetResourceVersion(version)
	s.version = version
	s.send(watch.Event{Type: watch.Bookmark, Object: object})
}

// linger before the end of a watch shows, where the reflector would take it for
// a failure: because the reflector's context has ended, at which it calls Stop
// anyway; or because a server that restarts, or a proxy, has cut the watch off
// at once, at which it would list everything again.
func (s *stream) linger() {
	if s.context.Err() != nil {
		<-s.stopped
		return
	}
	clock := s.source.pool.o.Clock
	rest := shortWatch - clock.Since(s.began)
	if s.initial || !s.silent || rest <= 0 {
		return
	}
	timer := clock.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-s.stopped:
	}
}

// do runs task between two events and returns when it is done, or without
// having run it when the stream or ctx ends before.
func (s *stream) do(ctx context.Context, task func()) {
	done := make(chan struct{})
	select {
	case s.tasks <- func() { defer close(done); task() }:
		<-done
	case <-s.ended:
	case <-ctx.Done():
	}
}

// finish the watch, so that the reflector makes a new one from where it is.
func (s *stream) finish(ctx context.Context) {
	s.do(ctx, func() {
		if s.initial {
			return
		}
		if s.silent {
			s.bookmark(s.version)
		}
		s.finished = true
	})
}
