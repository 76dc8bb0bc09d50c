package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Options of a Server.
type Options struct {
	// Config is the server's part of the configuration at the start.
	Config schema.Server
	// Sources are where the server reads what it shows.
	Sources Sources
	// Client asks the API server who a caller is and what it may do, and
	// follows kube-system/extension-apiserver-authentication. It must not be
	// fenced, since a standby serves too. Nil: bearer tokens are refused and
	// only members of system:masters pass.
	Client kubernetes.Interface
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Version of the binary, for people. Default: unknown.
	Version string
	// Started is when the process started. Default: now.
	Started time.Time
}

// Server is the daemon's HTTPS server.
type Server struct{}

// New returns a server that does not listen yet. An error means that
// opts.Config cannot be served, such as a certificate file that cannot be read.
func New(opts Options) (*Server, error) { return &Server{}, nil }

// Run listens and serves until ctx ends, and returns when all that it started
// has ended. An error means that it could not listen on the first address.
func (s *Server) Run(ctx context.Context) error { return nil }

// Apply takes a new configuration. A new address is listened on before the old
// listener drains. What cannot be applied stays as it is, is named in the
// error, and does not keep the rest from being applied. It may be called at
// any time, by one goroutine after the other.
func (s *Server) Apply(cfg schema.Server) error { return nil }

// Addr is the address that the server listens on; nil when it does not listen.
func (s *Server) Addr() net.Addr { return nil }

// Handler is everything the server serves, without authentication and
// authorization, for callers that are trusted.
func (s *Server) Handler() http.Handler { return nil }

// Status of the server itself.
func (s *Server) Status() Status { return Status{} }

// Status of the server itself.
type Status struct {
	// Addr that it listens on, empty when it does not listen.
	Addr string `json:"addr"`
	// Certificate that it serves.
	Certificate CertificateStatus `json:"certificate"`
	// ClientCA verifies client certificates.
	ClientCA CAStatus `json:"clientCA"`
}

// CertificateStatus is the state of the serving certificate.
type CertificateStatus struct {
	// Source is the certificate file, or self-signed.
	Source   string    `json:"source"`
	NotAfter time.Time `json:"notAfter"`
	LoadedAt time.Time `json:"loadedAt"`
	// LastError is why newer content of the files is not served; empty when
	// what is served is what is in the files.
	LastError string `json:"lastError,omitempty"`
}

// CAStatus is the state of the CA that verifies client certificates.
type CAStatus struct {
	// Source is a file or a ConfigMap; empty when there is none, and client
	// certificates are refused.
	Source    string    `json:"source"`
	LoadedAt  time.Time `json:"loadedAt"`
	LastError string    `json:"lastError,omitempty"`
}
