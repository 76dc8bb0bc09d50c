package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

const (
	// headerTimeout bounds the TLS handshake, and then the time in which a
	// request's header must arrive.
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	// acceptRest is how long a listener that was replaced accepts connections at
	// least, and acceptPoll how often it is then looked whether some still wait.
	acceptRest = 100 * time.Millisecond
	acceptPoll = 10 * time.Millisecond
	// maxHeaderBytes of one request; tokens are the largest headers known.
	maxHeaderBytes = 64 << 10
	// maxStreams that one HTTP/2 connection may have open.
	maxStreams = 100
)

// address that is listened on; port 0 is none.
type address struct {
	host string
	port int
}

func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// listener is one address that is served. A nil listener serves nothing.
type listener struct {
	net.Listener
	server *http.Server
	served chan struct{}
}

// listen serves address until the listener is stopped; nil for port 0.
// The listener that it will replace may be in the way: the wildcard address
// and a specific one exclude each other on the same port.
func (s *Server) listen(a address, replaced *listener) (*listener, error) {
	if a.port == 0 {
		return nil, nil
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", a.String())
	if errors.Is(err, syscall.EADDRINUSE) && replaced != nil {
		ln, err = listenBeside(a.String(), replaced.Listener)
	}
	if err != nil {
		return nil, fmt.Errorf("server.bindAddress, server.port: %w: %s", err, remedy(err))
	}
	l := &listener{
		Listener: ln,
		server: &http.Server{
			Handler:           s.closed,
			TLSConfig:         s.certificates.listenerConfig(),
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(s.log.Handler(), verbosity(2)),
			BaseContext:       func(net.Listener) context.Context { return s.requests.ctx },
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		},
		served: make(chan struct{}),
	}
	go func() {
		defer close(l.served)
		if err := l.server.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTPS server ended", "address", ln.Addr().String(), "err", err)
		}
	}()
	s.log.Info("Serving HTTPS", "address", ln.Addr().String())
	return l, nil
}

// replace stops a listener that another one has taken over from, after it has
// accepted the connections that were made before. Those that waited to be
// accepted would be cut off.
func (l *listener) replace(ctx context.Context) {
	if l == nil {
		return
	}
	late := time.Now().Add(drainTimeout)
	for wait := acceptRest; ; wait = acceptPoll {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if ctx.Err() != nil || !connectionWaits(l.Listener) || time.Now().After(late) {
			break
		}
	}
	l.stop(ctx, drainTimeout)
}

// stop refuses new connections, gives the requests under way until timeout,
// or until ctx ends, and then cuts them off.
func (l *listener) stop(ctx context.Context, timeout time.Duration) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := l.server.Shutdown(ctx); err != nil {
		// What is left of the connections is cut off; there is nobody to tell.
		_ = l.server.Close()
	}
	<-l.served
}

// remedy for an address that cannot be listened on.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop the process that uses it, or choose another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "choose an address of this host, or 0.0.0.0 for all of them"
	case errors.Is(err, syscall.EACCES):
		return "choose a port above 1023, or grant CAP_NET_BIND_SERVICE"
	default:
		return "choose another address or port"
	}
}
