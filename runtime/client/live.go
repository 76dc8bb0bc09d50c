package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// live sends the requests of clients to the endpoint that is the newest: the
// clients live longer than the credentials they started with.
type live struct {
	byContext

	// origin is the server for which clients make their requests.
	origin    *url.URL
	pingAfter time.Duration
	newest    atomic.Pointer[endpoint]
}

func newLive(c *credentials, pingAfter time.Duration) (*live, error) {
	l := &live{origin: c.server, pingAfter: pingAfter}
	e, err := newEndpoint(c, pingAfter)
	if err != nil {
		return nil, err
	}
	l.newest.Store(e)
	return l, nil
}

// prepare returns a function that takes c into use, nil when nothing changes.
// Connections are kept when they are still good.
func (l *live) prepare(c *credentials) (use func(), err error) {
	old := l.newest.Load()
	if old.credentials.sameConnection(c) {
		if old.credentials.config.BearerToken == c.config.BearerToken {
			return nil, nil
		}
		renewed, err := old.withToken(c)
		if err != nil {
			return nil, err
		}
		return func() { l.newest.Store(renewed) }, nil
	}
	e, err := newEndpoint(c, l.pingAfter)
	if err != nil {
		return nil, err
	}
	return func() {
		l.newest.Store(e)
		old.retire()
	}, nil
}

func (l *live) RoundTrip(req *http.Request) (*http.Response, error) {
	e := l.newest.Load()
	resp, err := e.authenticated.RoundTrip(e.addressed(req, l.origin))
	if err != nil || !watching(req) {
		return resp, err
	}
	resp.Body = endingWith(e.current, resp.Body)
	return resp, nil
}

func movePrefix(path, from, to string) string {
	return strings.TrimSuffix(to, "/") + "/" + strings.TrimPrefix(strings.TrimPrefix(path, strings.TrimSuffix(from, "/")), "/")
}

func watching(req *http.Request) bool {
	if !strings.Contains(req.URL.RawQuery, "watch=") {
		return false
	}
	watch := req.URL.Query().Get("watch")
	return watch == "1" || watch == "true"
}

// watchBody ends a watch as the API server ends one, so that its client goes
// on from where it was.
type watchBody struct {
	io.ReadCloser
	ended context.Context
	stop  func() bool
}

func endingWith(ended context.Context, body io.ReadCloser) io.ReadCloser {
	return &watchBody{
		ReadCloser: body,
		ended:      ended,
		stop:       context.AfterFunc(ended, func() { _ = body.Close() }), // it was only read from
	}
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.ended.Err() != nil {
		err = io.EOF
	}
	return n, err
}

func (b *watchBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}
