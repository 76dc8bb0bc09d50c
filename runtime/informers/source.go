package informers

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// hurriedWatch is how long a watch lasts that is wanted for its bookmark: the
// API server sends one two seconds before it ends a watch.
const hurriedWatch = 3 * time.Second

// source makes an informer's requests. It repeats those that failed for a
// reason that passes, so that the reflector does not: the reflector waits up to
// a minute between two attempts, partly without noticing that it is to stop,
// and lists everything again after some errors that a new watch would mend.
type source struct {
	pool     *Pool
	key      key
	requests requests
	health   health
	lists    atomic.Int64
	watches  atomic.Int64
	// hurry makes the next watch a short one.
	hurry atomic.Bool

	mu     sync.Mutex
	stream *stream
}

func newSource(p *Pool, k key, r requests) *source {
	return &source{
		pool:     p,
		key:      k,
		requests: r,
		health:   health{key: k, outage: &p.outage, logger: p.o.Logger},
	}
}

// listWatch streams the state where client can, as fake ones cannot.
func (s *source) listWatch(client any) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(
		&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}, client)
}

func (s *source) list(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	err = s.repeat(ctx, false, func() error {
		s.lists.Add(1)
		list, err = s.requests.list(ctx, options)
		return err
	})
	return list, err
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	withState := ptr.Deref(options.SendInitialEvents, false)
	if !withState && s.hurry.Swap(false) {
		options.TimeoutSeconds = ptr.To(int64(hurriedWatch / time.Second))
	}
	var upstream watch.Interface
	err := s.repeat(ctx, withState, func() (err error) {
		s.watches.Add(1)
		upstream, err = s.requests.watch(ctx, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	st := newStream(ctx, s, upstream, withState, options.ResourceVersion)
	s.mu.Lock()
	s.stream = st
	s.mu.Unlock()
	// The caller is a goroutine of the pool, so that Close is not past waiting.
	s.pool.running.Go(st.run)
	return st, nil
}

// current stream, which may have ended; nil before the first.
func (s *source) current() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream
}

// repeat try until it succeeds, fails for good, or ctx ends. A stream of the
// state that fails for good is no fault: the reflector lists instead.
func (s *source) repeat(ctx context.Context, streamsState bool, try func() error) error {
	backoff := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
	for {
		err := try()
		switch {
		case err == nil:
			s.health.works()
			return nil
		case ctx.Err() != nil:
			return ctx.Err() // the reflector would wait after another error
		case !passes(err):
			if !streamsState {
				s.health.failed(err)
			}
			return err
		}
		s.health.failed(err)
		pause := backoff.Step()
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		timer := s.pool.o.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// passes tells errors of the network and of a server that is overloaded,
// starting or stopping from answers that will stay the same.
func passes(err error) bool {
	if unreachable(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return false
	}
	switch status.Status().Code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// unreachable tells that the request got no answer.
func unreachable(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport)
}
