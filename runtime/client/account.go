package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/controller-manager/pkg/clientbuilder"
)

// account authenticates requests as a service account. The account is looked
// up, made when it is missing, and given a token by the first request; the
// token is kept, and renewed by a request that finds it old.
type account struct {
	byContext

	name    string
	fence   *Fence
	builder clientbuilder.ControllerClientBuilder
	// next sends requests without any other identity.
	next http.RoundTripper
	// requests under way, also those whose caller has left.
	requests *sync.WaitGroup

	mu            sync.Mutex
	authenticated http.RoundTripper
}

// RoundTrip returns when req's context ends even if the account is just being
// looked up or given a token, for which the library takes no context.
func (a *account) RoundTrip(req *http.Request) (*http.Response, error) {
	type answer struct {
		resp *http.Response
		err  error
	}
	answers := make(chan answer)
	ctx := req.Context()
	a.requests.Go(func() {
		resp, err := a.roundTrip(req)
		select {
		case answers <- answer{resp, err}:
		case <-ctx.Done():
			if resp != nil {
				_ = resp.Body.Close() // nobody reads it
			}
		}
	})
	select {
	case got := <-answers:
		return got.resp, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (a *account) roundTrip(req *http.Request) (*http.Response, error) {
	authenticated, err := a.transport(req.Context())
	if err != nil {
		closeBody(req)
		return nil, fmt.Errorf("credentials of service account %s: %w", a.name, err)
	}
	return authenticated.RoundTrip(req)
}

func (a *account) transport(ctx context.Context) (http.RoundTripper, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.authenticated != nil {
		return a.authenticated, nil
	}
	// Waiters whose time is over must not try again one after the other.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// A token is a write. A standby asks for none, even when it reads.
	if err := a.fence.Allow(); err != nil {
		return nil, err
	}
	config, err := a.builder.Config(a.name)
	if err != nil {
		return nil, err
	}
	a.authenticated = config.WrapTransport(a.next)
	return a.authenticated, nil
}
