package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// fenceTransport lets writes pass only while the fence is open, and reads always.
type fenceTransport struct {
	byContext

	fence *Fence
	next  http.RoundTripper
}

func (t *fenceTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !mutating(req) {
		return t.next.RoundTrip(req)
	}
	ctx, release, err := t.fence.guard(req.Context())
	if err != nil {
		closeBody(req)
		t.fence.refused.Add(1)
		return nil, fmt.Errorf("refused: %w", err)
	}
	resp, err := t.next.RoundTrip(t.guarded(ctx, req))
	if err != nil {
		defer release()
		if errors.Is(err, ErrFenced) || errors.Is(context.Cause(ctx), ErrFenced) {
			t.fence.refused.Add(1)
			// Not the error of the transport, which says "context canceled" only.
			return nil, fmt.Errorf("cancelled in flight: %w", ErrFenced)
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols { // its body is a connection
		resp.Body = &answerBody{ReadCloser: resp.Body, ctx: ctx, release: release}
	}
	return resp, nil
}

// guarded returns req with ctx and a body that is given out only while the
// fence is open: a process that is stopped between the check and the sending
// finds the fence shut at the last moment, and the API server ignores a write
// whose body does not come.
func (t *fenceTransport) guarded(ctx context.Context, req *http.Request) *http.Request {
	req = req.WithContext(ctx)
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	req.Body = &fencedBody{ReadCloser: req.Body, fence: t.fence}
	if again := req.GetBody; again != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			if err != nil {
				return nil, err
			}
			return &fencedBody{ReadCloser: body, fence: t.fence}, nil
		}
	}
	return req
}

// mutating tells whether a request may change something.
func mutating(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return false
	default:
		return true
	}
}

// closeBody does what a RoundTripper owes its caller when it sends nothing.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // it was only read from
	}
}

type fencedBody struct {
	io.ReadCloser
	fence *Fence
}

func (b *fencedBody) Read(p []byte) (int, error) {
	if err := b.fence.Allow(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// answerBody is the body of a write's answer.
type answerBody struct {
	io.ReadCloser
	ctx     context.Context
	release func()
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), ErrFenced) {
		err = fmt.Errorf("cancelled in flight: %w", ErrFenced)
	}
	return n, err
}

func (b *answerBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
