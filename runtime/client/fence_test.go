package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFenceIsShutAtFirst(t *testing.T) {
	f := NewFence(nil)
	if err := f.Allow(); !errors.Is(err, ErrFenced) {
		t.Fatalf("Allow() = %v, want ErrFenced", err)
	}
	if !f.Deadline().IsZero() {
		t.Fatalf("Deadline() = %s, want zero", f.Deadline())
	}
}

func TestFenceShutsAtItsDeadlineUnlessExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(nil)
		defer f.Shut()
		start := time.Now()
		f.Extend(start.Add(10 * time.Second))
		if got := f.Deadline(); !got.Equal(start.Add(10 * time.Second)) {
			t.Errorf("Deadline() = %s, want 10s from the start", got.Sub(start))
		}
		pass(9 * time.Second)
		expectOpen(t, f)
		f.Extend(start.Add(15 * time.Second))
		pass(5 * time.Second) // 14 s
		expectOpen(t, f)
		f.Extend(start.Add(14500 * time.Millisecond)) // an earlier time counts too
		pass(500 * time.Millisecond)
		expectShut(t, f)
		f.Extend(time.Now().Add(-time.Second)) // over already
		expectShut(t, f)
		f.Extend(time.Now().Add(time.Second)) // leading again
		expectOpen(t, f)
		f.Shut()
		expectShut(t, f)
		f.OpenAlways()
		pass(24 * time.Hour)
		expectOpen(t, f)
		if !f.Deadline().IsZero() {
			t.Errorf("Deadline() = %s while always open, want zero", f.Deadline())
		}
		f.Shut()
		expectShut(t, f)
	})
}

// A suspended machine's monotonic clock stands still, and so do its timers;
// a wall clock can be set back. Neither may keep the fence open.
func TestFenceIsShutWhenEitherClockSaysSo(t *testing.T) {
	tests := []struct {
		name            string
		monotonic, wall time.Duration
		open            bool
	}{
		{"within the time", 9 * time.Second, 9 * time.Second, true},
		{"suspended", 1 * time.Second, 11 * time.Second, false},
		{"stopped", 11 * time.Second, 11 * time.Second, false},
		{"wall clock set back", 11 * time.Second, -time.Hour, false},
		{"wall clock set back within the time", 9 * time.Second, -time.Hour, true},
		{"wall clock set forward", 1 * time.Second, time.Hour, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &twoClocks{wall: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
			f := NewFence(c)
			f.monotonic = func() time.Duration { return c.monotonic }
			f.Extend(c.wall.Add(10 * time.Second))
			ctx, release, err := f.guard(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			c.monotonic += test.monotonic
			c.wall = c.wall.Add(test.wall)
			if open := f.Allow() == nil; open != test.open {
				t.Errorf("open = %t, want %t", open, test.open)
			}
			if !test.open {
				select {
				case <-ctx.Done():
				case <-time.After(soon):
					t.Error("a write in flight was not cancelled")
				}
			}
		})
	}
}

func TestFencedWritesAreRefusedAndReadsPass(t *testing.T) {
	f := NewFence(nil)
	sent := map[string]int{}
	rt := &fenceTransport{fence: f, next: roundTripper(func(req *http.Request) (*http.Response, error) {
		sent[req.Method]++
		return answer(http.StatusOK, "", ""), nil
	})}
	methods := []struct {
		method string
		fenced bool
	}{
		{http.MethodGet, false}, {http.MethodHead, false}, {http.MethodOptions, false},
		{http.MethodPost, true}, {http.MethodPut, true}, {http.MethodPatch, true}, {http.MethodDelete, true},
	}
	for _, m := range methods {
		body := &closeRecorder{Reader: strings.NewReader("body")}
		resp, err := rt.RoundTrip(newRequest(t, m.method, "https://server/api/v1/pods", body))
		if m.fenced {
			if !errors.Is(err, ErrFenced) || sent[m.method] != 0 {
				t.Errorf("%s: error %v and sent %d times, want it refused", m.method, err, sent[m.method])
			}
			if !body.closed {
				t.Errorf("%s: the body of a refused request was not closed", m.method)
			}
			continue
		}
		if err != nil || sent[m.method] != 1 {
			t.Errorf("%s: error %v and sent %d times, want it passed", m.method, err, sent[m.method])
			continue
		}
		_ = resp.Body.Close()
	}
	if got := f.Refused(); got != 4 {
		t.Errorf("Refused() = %d, want 4", got)
	}
	f.OpenAlways()
	if _, err := rt.RoundTrip(newRequest(t, http.MethodPost, "https://server/api/v1/pods", nil)); err != nil {
		t.Errorf("refused by an open fence: %v", err)
	}
}

func TestWriteInFlightIsCancelledAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(nil)
		rt := &fenceTransport{fence: f, next: roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})}
		start := time.Now()
		f.Extend(start.Add(10 * time.Second))
		go func() {
			pass(8 * time.Second)
			f.Extend(start.Add(20 * time.Second)) // renewed while the write is under way
		}()
		_, err := rt.RoundTrip(newRequest(t, http.MethodPost, "https://server/api/v1/pods", strings.NewReader("{}")))
		if !errors.Is(err, ErrFenced) {
			t.Errorf("error %v, want ErrFenced", err)
		}
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("cancelled after %s, want 20s", took)
		}
		if f.Refused() != 1 {
			t.Errorf("Refused() = %d, want 1", f.Refused())
		}
	})
}

func TestAnswerThatTheFenceCutsOffSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(nil)
		rt := &fenceTransport{fence: f, next: roundTripper(func(req *http.Request) (*http.Response, error) {
			resp := answer(http.StatusOK, "", "")
			resp.Body = io.NopCloser(readFunc(func([]byte) (int, error) {
				<-req.Context().Done()
				return 0, req.Context().Err()
			}))
			return resp, nil
		})}
		f.OpenAlways()
		resp, err := rt.RoundTrip(newRequest(t, http.MethodDelete, "https://server/api/v1/pods/a", nil))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, f.Shut)
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, ErrFenced) {
			t.Errorf("error %v, want ErrFenced", err)
		}
		_ = resp.Body.Close()
	})
}

// A process can be stopped between the check and the sending. The body, without
// which the API server does nothing, must not leave it afterwards.
func TestBodyIsNotGivenOutAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(nil)
		rt := &fenceTransport{fence: f, next: roundTripper(func(req *http.Request) (*http.Response, error) {
			f.Shut()
			// As a transport does that has not looked at the context yet.
			if body, err := io.ReadAll(req.Body); err == nil {
				t.Errorf("the body was given out: %q", body)
			}
			again, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			_, err = io.ReadAll(again)
			return nil, err
		})}
		f.Extend(time.Now().Add(time.Second))
		_, err := rt.RoundTrip(newRequest(t, http.MethodPost, "https://server/api/v1/pods", strings.NewReader("{}")))
		if !errors.Is(err, ErrFenced) {
			t.Errorf("error %v, want ErrFenced", err)
		}
	})
}

func TestOtherErrorsOfAWriteAreKept(t *testing.T) {
	f := NewFence(nil)
	f.OpenAlways()
	want := errors.New("connection refused")
	rt := &fenceTransport{fence: f, next: roundTripper(func(*http.Request) (*http.Response, error) { return nil, want })}
	if _, err := rt.RoundTrip(newRequest(t, http.MethodPost, "https://server/api/v1/pods", nil)); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if f.Refused() != 0 {
		t.Errorf("Refused() = %d, want 0", f.Refused())
	}
}

func expectOpen(t *testing.T, f *Fence) {
	t.Helper()
	if err := f.Allow(); err != nil {
		t.Errorf("shut, want open: %v", err)
	}
}

func expectShut(t *testing.T, f *Fence) {
	t.Helper()
	if f.Allow() == nil {
		t.Error("open, want shut")
	}
	if _, _, err := f.guard(context.Background()); err == nil {
		t.Error("a write passes, want it refused")
	}
	if !f.Deadline().IsZero() {
		t.Errorf("Deadline() = %s while shut, want zero", f.Deadline())
	}
}
