package client

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

type closeRecorder struct {
	io.Reader
	closed bool
}

func (r *closeRecorder) Close() error {
	r.closed = true
	return nil
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func answer(code int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {contentType}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

// twoClocks is a machine whose clocks went apart. Its timers never fire, as
// those of a suspended machine.
type twoClocks struct {
	clock.RealClock
	monotonic time.Duration
	wall      time.Time
}

func (c *twoClocks) Now() time.Time                  { return c.wall }
func (c *twoClocks) Since(t time.Time) time.Duration { return c.wall.Sub(t) }
func (c *twoClocks) AfterFunc(time.Duration, func()) clock.Timer {
	return clock.RealClock{}.AfterFunc(time.Hour, func() {})
}

// pass lets time go by in a bubble of synctest, where nobody waits for it.
func pass(d time.Duration) { time.Sleep(d) }
