package informers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	errRefused = &url.Error{Op: "Get", URL: "https://127.0.0.1", Err: syscall.ECONNREFUSED}
	things     = schema.GroupResource{Resource: "things"}
)

func TestOnlySomeErrorsPass(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{errRefused, true},
		{fmt.Errorf("wrapped: %w", errRefused), true},
		{apierrors.NewTooManyRequests("busy", 1), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewTimeoutError("slow", 1), true},
		{tooLarge, false},
		{apierrors.NewInternalError(errors.New("broken")), false},
		{apierrors.NewForbidden(things, "", errors.New("no")), false},
		{apierrors.NewNotFound(things, ""), false},
		{apierrors.NewResourceExpired("old"), false},
		{errors.New("cannot decode"), false},
	} {
		if got := passes(test.err); got != test.want {
			t.Errorf("passes(%v) = %t, want %t", test.err, got, test.want)
		}
	}
}

// failing requests.
type failing struct {
	err    error
	failed int
	// works after so many failures; 0 never.
	works int
}

func (f *failing) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	if f.works > 0 && f.failed == f.works {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	f.failed++
	return nil, f.err
}

func (f *failing) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if _, err := f.list(ctx, options); err != nil {
		return nil, err
	}
	return watch.NewFake(), nil
}

func (f *failing) example() runtime.Object { return &metav1.PartialObjectMetadata{} }

func TestPassingErrorsAreOutlasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := &failing{err: errRefused, works: 50}
		var logged bytes.Buffer
		pool := NewPool(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		s := newSource(pool, key{}, requests)
		began := time.Now()
		if _, err := s.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		// No pause is longer than 5 s, jitter aside: an API server that is back is found soon.
		if took := time.Since(began); took < time.Minute || took > 7*time.Minute || s.lists.Load() != 51 {
			t.Errorf("%d lists in %s", s.lists.Load(), took)
		}
		if got := strings.Count(logged.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings, want 1:\n%s", got, logged.String())
		}
		if s.health.lastError() != "" || !strings.Contains(logged.String(), "can be reached again") {
			t.Errorf("last error %q, log:\n%s", s.health.lastError(), logged.String())
		}
	})
}

func TestServersDelayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := &failing{err: apierrors.NewTooManyRequests("busy", 30), works: 1}
		s := newSource(NewPool(Options{Logger: slog.New(slog.DiscardHandler)}), key{}, requests)
		began := time.Now()
		if _, err := s.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("tried again after %s, want 30 s", took)
		}
	})
}

func TestStopIsNotSleptThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(NewPool(Options{Logger: slog.New(slog.DiscardHandler)}), key{}, &failing{err: errRefused})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := s.watch(ctx, metav1.ListOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("error %v after %s, want the context's when it ends", err, time.Since(began))
		}
	})
}

func TestStreamOfStateThatIsRefusedIsNoFault(t *testing.T) {
	refused := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "no"}}
	yes := true
	for _, test := range []struct {
		options metav1.ListOptions
		fault   bool
	}{
		{metav1.ListOptions{SendInitialEvents: &yes}, false},
		{metav1.ListOptions{}, true},
	} {
		s := newSource(NewPool(Options{Logger: slog.New(slog.DiscardHandler)}), key{}, &failing{err: refused})
		if _, err := s.watch(t.Context(), test.options); err == nil {
			t.Error("no error")
		}
		if got := s.health.lastError() != ""; got != test.fault {
			t.Errorf("%+v: last error %q", test.options, s.health.lastError())
		}
	}
}
