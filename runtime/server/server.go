package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// drainTimeout bounds how long a listener that was replaced finishes its requests.
	drainTimeout = 30 * time.Second
	// stopTimeout bounds the same at the end of Run, so that the process can end in time.
	stopTimeout = 500 * time.Millisecond
)

// Server is the daemon's HTTPS server.
type Server struct {
	log     *slog.Logger
	sources Sources
	version string
	started time.Time

	certificates *certificates
	trust        *trust
	gate         *gate
	slis         *slis
	profiling    atomic.Bool
	requests     *requests
	open, closed http.Handler

	current atomic.Pointer[listener]

	// mu serializes Run and Apply.
	mu      sync.Mutex
	running bool
	// address that is, or before Run shall be, listened on.
	address address
	files   *follower
	// drain ends the draining of listeners that were replaced.
	drain  context.Context
	cancel context.CancelFunc
	drains sync.WaitGroup
}

// New returns a server that does not listen yet. An error means that
// opts.Config cannot be served, such as a certificate file that cannot be read.
func New(opts Options) (*Server, error) {
	s := &Server{
		log:      cmp.Or(opts.Logger, slog.Default()),
		sources:  opts.Sources.withDefaults(),
		version:  cmp.Or(opts.Version, "unknown"),
		started:  opts.Started,
		slis:     newSLIs(),
		requests: newRequests(),
	}
	if s.started.IsZero() {
		s.started = time.Now()
	}
	s.drain, s.cancel = context.WithCancel(context.Background())
	s.trust = newTrust(s.log, opts.Client)
	s.certificates = newCertificates(s.log, s.trust)
	var err error
	if s.gate, err = newGate(s.log, opts.Client, s.trust); err != nil {
		return nil, fmt.Errorf("set up authentication and authorization: %w", err)
	}
	routes := s.routes()
	s.open = s.wrap(routes)
	s.closed = s.wrap(s.gate.protect(routes))
	if err := s.apply(opts.Config); err != nil {
		return nil, err
	}
	return s, nil
}

// Run listens and serves until ctx ends, and returns when all that it started
// has ended. An error means that it could not listen on the first address.
// It is called once.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	first, err := s.listen(s.address, nil)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	s.running = true
	s.current.Store(first)
	s.files.start()
	s.mu.Unlock()

	var background sync.WaitGroup
	background.Go(func() { s.trust.run(ctx) })
	background.Go(func() { s.certificates.run(ctx) })
	<-ctx.Done()

	s.mu.Lock()
	s.running = false
	s.files.stop()
	last := s.current.Swap(nil)
	s.mu.Unlock()
	last.stop(s.drain, stopTimeout)
	s.cancel()
	s.requests.cancel()
	s.drains.Wait()
	background.Wait()
	if left := s.requests.wait(stopTimeout); left > 0 {
		s.log.Warn("Requests go on after the server has ended", "requests", left)
	}
	return nil
}

// Apply takes a new configuration. A new address is listened on before the old
// listener drains. What cannot be applied stays as it is, is named in the
// error, and does not keep the rest from being applied. It may be called at
// any time, by any goroutine.
func (s *Server) Apply(cfg schema.Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(cfg)
}

func (s *Server) apply(cfg schema.Server) error {
	s.profiling.Store(cfg.Profiling)
	return errors.Join(
		s.gate.setOpenPaths(cfg.Authorization.AlwaysAllowPaths),
		s.certificates.setLimits(cfg.TLS.MinVersion, cfg.TLS.CipherSuites),
		s.applyFiles(filesOf(cfg.TLS)),
		s.certificates.setSelfSigned(cfg.TLS.CertFile == "", cfg.BindAddress),
		s.applyAddress(address{cfg.BindAddress, cfg.Port}),
	)
}

// applyFiles follows other files from now on. When they cannot be used, what
// was used before goes on until they can.
func (s *Server) applyFiles(paths tlsFiles) error {
	if s.files != nil && s.files.paths == paths {
		return s.files.missing()
	}
	s.files.stop()
	s.files = newFollower(s.log, paths, s.certificates, s.trust)
	err := s.files.load()
	if s.running {
		s.files.start()
	}
	return err
}

// applyAddress moves to another address. Before Run it is only remembered.
func (s *Server) applyAddress(next address) error {
	if !s.running || next == s.address {
		s.address = next
		return nil
	}
	old := s.current.Load()
	l, err := s.listen(next, old)
	if err != nil {
		return err
	}
	s.address = next
	s.current.Store(l)
	s.drains.Go(func() { old.replace(s.drain) })
	return nil
}

// Addr is the address that the server listens on; nil when it does not listen.
func (s *Server) Addr() net.Addr {
	if l := s.current.Load(); l != nil {
		return l.Addr()
	}
	return nil
}

// Handler is everything the server serves, without authentication and
// authorization, for callers that are trusted.
func (s *Server) Handler() http.Handler { return s.open }

// Status of the server itself.
func (s *Server) Status() Status {
	status := Status{Certificate: s.certificates.state(), ClientCA: s.trust.state()}
	if addr := s.Addr(); addr != nil {
		status.Addr = addr.String()
	}
	return status
}
