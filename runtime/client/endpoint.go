package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
)

// endpoint is the API server as it is reached with some credentials.
type endpoint struct {
	credentials *credentials
	connections *http.Transport
	// authenticated adds the credentials to requests and sends them over connections.
	authenticated http.RoundTripper
	// current ends when newer connections have taken over: watches end then.
	current context.Context
	retire  func()
}

// streamBuffer bounds what has been received of an answer and not been read yet,
// by default 4 MiB. The API server sends the state of a resource faster than it
// is decoded, and dozens of informers start at the same time.
const streamBuffer = 512 << 10

// newEndpoint makes connections when they are needed. An idle one is checked
// after pingAfter, and given up when there is no answer for as long again; 0
// leaves client-go's times, 30 and 15 s.
func newEndpoint(c *credentials, pingAfter time.Duration) (*endpoint, error) {
	config, err := c.config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("connection to %s: %w", c.server.Redacted(), err)
	}
	tlsConfig, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("connection to %s: %w", c.server.Redacted(), err)
	}
	connections := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25, // as client-go has it; matters to HTTP/1.1 only
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		DisableCompression:  true, // the API server is near, and compressing is slow
	}
	if config.Proxy != nil {
		connections.Proxy = config.Proxy
	}
	if config.DialHolder != nil { // of an exec plugin, which closes connections when its certificate changes
		connections.DialContext = config.DialHolder.Dial
	}
	connections.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: streamBuffer}
	if pingAfter > 0 {
		connections.HTTP2.SendPingTimeout, connections.HTTP2.PingTimeout = pingAfter, pingAfter
	}
	e := &endpoint{credentials: c, connections: utilnet.SetTransportDefaults(connections)}
	if e.authenticated, err = authenticate(config, connections); err != nil {
		return nil, fmt.Errorf("connection to %s: %w", c.server.Redacted(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.current = ctx
	e.retire = func() {
		cancel()
		connections.CloseIdleConnections()
	}
	return e, nil
}

// withToken returns the endpoint with the token of other credentials, on the same connections.
func (e *endpoint) withToken(c *credentials) (*endpoint, error) {
	config, err := c.config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("connection to %s: %w", c.server.Redacted(), err)
	}
	renewed := *e
	renewed.credentials = c
	if renewed.authenticated, err = authenticate(config, e.connections); err != nil {
		return nil, fmt.Errorf("connection to %s: %w", c.server.Redacted(), err)
	}
	return &renewed, nil
}

// authenticate does what transport.HTTPWrappersForConfig does, without the user
// agent and the request log: those belong to the single clients above.
func authenticate(config *transport.Config, rt http.RoundTripper) (http.RoundTripper, error) {
	if config.WrapTransport != nil { // exec plugin
		rt = config.WrapTransport(rt)
	}
	switch {
	case config.HasBasicAuth() && config.HasTokenAuth():
		return nil, errors.New("user name and token are both set; set one")
	case config.HasTokenAuth():
		var err error
		// It reads the file itself every minute, should a change go unnoticed.
		if rt, err = transport.NewBearerAuthWithRefreshRoundTripper(config.BearerToken, config.BearerTokenFile, rt); err != nil {
			return nil, err
		}
	case config.HasBasicAuth():
		rt = transport.NewBasicAuthRoundTripper(config.Username, config.Password, rt)
	}
	i := config.Impersonate
	if i.UserName != "" || i.UID != "" || len(i.Groups) > 0 || len(i.Extra) > 0 {
		rt = transport.NewImpersonatingRoundTripper(i, rt)
	}
	return rt, nil
}

// addressed returns req, which was made for the server at origin, for this endpoint.
func (e *endpoint) addressed(req *http.Request, origin *url.URL) *http.Request {
	server := e.credentials.server
	if *server == *origin {
		return req
	}
	moved, target := *req, *req.URL
	target.Scheme, target.Host, target.User = server.Scheme, server.Host, server.User
	target.Path = movePrefix(target.Path, origin.Path, server.Path)
	if target.RawPath != "" {
		target.RawPath = movePrefix(target.RawPath, origin.EscapedPath(), server.EscapedPath())
	}
	moved.URL, moved.Host = &target, ""
	return &moved
}
