package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	certutil "k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
)

const (
	selfSignedSource = "self-signed"
	// selfSignedRenewal is how long before its expiry a self-signed
	// certificate, which is valid for a year, is replaced.
	selfSignedRenewal = 30 * 24 * time.Hour
)

// certificates is what a TLS handshake needs. Handshakes read one immutable
// configuration; every change makes a new one, and leaves connections alone.
type certificates struct {
	log     *slog.Logger
	trust   *trust
	current atomic.Pointer[tls.Config]
	// renew wakes run when the certificate was replaced.
	renew chan struct{}

	mu         sync.Mutex
	minVersion uint16
	ciphers    []uint16
	pair       *tls.Certificate
	status     CertificateStatus
	// host of the self-signed certificate; selfSigned tells whether one is wanted.
	host       string
	selfSigned bool
}

func newCertificates(log *slog.Logger, t *trust) *certificates {
	c := &certificates{log: log, trust: t, renew: make(chan struct{}, 1)}
	t.onChange = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rebuild()
	}
	return c
}

// listenerConfig is for http.Server: it asks for the newest configuration at
// each handshake.
func (c *certificates) listenerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if config := c.current.Load(); config != nil {
				return config, nil
			}
			return nil, errors.New("no serving certificate is loaded")
		},
	}
}

// setLimits takes the lowest TLS version and the cipher suites of TLS 1.2;
// empty means 1.2 and Go's.
func (c *certificates) setLimits(minVersion string, suites []string) error {
	version, err := cliflag.TLSVersion(minVersion)
	if err == nil && version < tls.VersionTLS12 {
		err = fmt.Errorf("%s is not safe", minVersion)
	}
	if err != nil {
		return fmt.Errorf("server.tls.minVersion: %w: use VersionTLS12 or VersionTLS13", err)
	}
	var ciphers []uint16
	if len(suites) > 0 {
		if ciphers, err = cliflag.TLSCipherSuites(suites); err != nil {
			return fmt.Errorf("server.tls.cipherSuites: %w: use IANA names that Go knows", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.minVersion, c.ciphers = version, ciphers
	c.rebuild()
	return nil
}

// usePair serves the certificate from now on. When it cannot be used, the one
// before stays, and the reason is kept until a good one comes.
func (c *certificates) usePair(cert, key filewatch.File) error {
	err := errors.Join(cert.Err, key.Err)
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(cert.Data, key.Data)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("server.tls.certFile %s, keyFile %s: %w: give a PEM certificate and the key that belongs to it",
			cert.Path, key.Path, err)
		c.status.LastError = err.Error()
		return err
	}
	c.serve(pair, cert.Path)
	return nil
}

// setSelfSigned makes a certificate for host when one is wanted and there is
// none yet.
func (c *certificates) setSelfSigned(wanted bool, host string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.selfSigned = wanted
	if !wanted {
		return nil
	}
	if c.status.Source == selfSignedSource && c.host == host {
		c.status.LastError = "" // of files that are not asked for any more
		return nil
	}
	return c.selfSign(host)
}

func (c *certificates) selfSign(host string) error {
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() && !ip.Equal(ips[0]) {
		ips = append(ips, ip)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{
		Host:         "localhost",
		AlternateIPs: ips,
	})
	if err != nil {
		return fmt.Errorf("make a self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("make a self-signed certificate: %w", err)
	}
	c.host = host
	c.serve(pair, selfSignedSource)
	return nil
}

// serve and rebuild are called with mu held.
func (c *certificates) serve(pair tls.Certificate, source string) {
	c.pair = &pair
	c.status = CertificateStatus{Source: source, NotAfter: pair.Leaf.NotAfter, LoadedAt: time.Now()}
	c.rebuild()
	select {
	case c.renew <- struct{}{}:
	default:
	}
	c.log.Info("Loaded serving certificate", "source", source, "subject", pair.Leaf.Subject.String(), "notAfter", pair.Leaf.NotAfter)
}

func (c *certificates) rebuild() {
	if c.pair == nil {
		return
	}
	c.current.Store(&tls.Config{
		MinVersion:   c.minVersion,
		CipherSuites: c.ciphers,
		Certificates: []tls.Certificate{*c.pair},
		// Asked for and verified per request, so that tokens work as well and
		// a new CA holds for connections that are open.
		ClientAuth: tls.RequestClientCert,
		ClientCAs:  c.trust.acceptable(),
		NextProtos: []string{"h2", "http/1.1"},
	})
}

// run renews the self-signed certificate until ctx ends.
func (c *certificates) run(ctx context.Context) {
	for {
		var due <-chan time.Time
		c.mu.Lock()
		if c.selfSigned {
			// The minute spaces out attempts that fail.
			due = time.After(max(time.Minute, time.Until(c.status.NotAfter.Add(-selfSignedRenewal))))
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-c.renew:
		case <-due:
			c.renewSelfSigned()
		}
	}
}

func (c *certificates) renewSelfSigned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.selfSigned {
		return
	}
	if err := c.selfSign(c.host); err != nil {
		c.status.LastError = err.Error()
		c.log.Error("Self-signed certificate is not renewed", "err", err)
	}
}

func (c *certificates) state() CertificateStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}
