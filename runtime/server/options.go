package server

import (
	"log/slog"
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
	Source   string    `json:"source"`
	LoadedAt time.Time `json:"loadedAt"`
	// LastError is why newer content is not used, empty when it is.
	LastError string `json:"lastError,omitempty"`
}

// verbosity n of Kubernetes is this level of slog.
func verbosity(n int) slog.Level { return slog.Level(-n) }
