package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue returns a certificate for a server on 127.0.0.1 or for a user in groups.
func (a *authority) issue(t *testing.T, name string, groups ...string) (cert, key []byte) {
	t.Helper()
	private := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// pairFiles writes a certificate and its key.
func pairFiles(t *testing.T, dir string, cert, key []byte) schema.ServerTLS {
	t.Helper()
	files := schema.ServerTLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	write(t, files.CertFile, cert)
	write(t, files.KeyFile, key)
	return files
}

// write replaces a file as a whole.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	fresh := path + ".new"
	if err := os.WriteFile(fresh, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		t.Fatal(err)
	}
}

// presented is the certificate that the server shows to a new connection.
func presented(t *testing.T, s *running) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

func waitForName(t *testing.T, s *running, name string) {
	t.Helper()
	eventually(t, "the server shows "+name, func() error {
		if got := presented(t, s).Subject.CommonName; got != name {
			return fmt.Errorf("it shows %s", got)
		}
		return nil
	})
}

func TestCertificate_ContentIsFollowed(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	cert, key := ca.issue(t, "first")
	files := pairFiles(t, dir, cert, key)
	s := run(t, Options{Sources: sample(), Config: schema.Server{Authorization: everything, TLS: files}})
	waitForName(t, s, "first")
	if status := s.Status().Certificate; status.Source != files.CertFile || status.LastError != "" || status.NotAfter.IsZero() {
		t.Errorf("status is %+v", status)
	}

	// A connection that stays open through everything below.
	connections := 0
	open := newClient(t)
	open.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		connections++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	stillServed := func() {
		t.Helper()
		if code, _ := fetch(t, open, s.url("/livez")); code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	}
	stillServed()

	// The certificate alone does not belong to the key: the old pair stays.
	cert, key = ca.issue(t, "second")
	write(t, files.CertFile, cert)
	eventually(t, "the mismatch is reported", func() error {
		if message := s.Status().Certificate.LastError; !strings.Contains(message, files.CertFile) || !strings.Contains(message, "give a PEM certificate") {
			return fmt.Errorf("status says %q", message)
		}
		return nil
	})
	waitForName(t, s, "first")
	mustContain(t, func() string { _, body := fetch(t, open, s.url("/")); return body }(), "The certificate files cannot be used")
	write(t, files.KeyFile, key)
	waitForName(t, s, "second")
	eventually(t, "the status tells of no error", func() error {
		if message := s.Status().Certificate.LastError; message != "" {
			return errors.New(message)
		}
		return nil
	})
	stillServed()

	for name, content := range map[string][]byte{
		"not PEM":  []byte("not a certificate"),
		"empty":    {},
		"only key": key,
	} {
		write(t, files.CertFile, content)
		eventually(t, name+" is reported", func() error {
			if s.Status().Certificate.LastError == "" {
				return errors.New("no error")
			}
			return nil
		})
		if message := s.Status().Certificate.LastError; strings.Contains(message, "PRIVATE KEY-----") {
			t.Errorf("%s: key material in %q", name, message)
		}
		waitForName(t, s, "second")
		write(t, files.CertFile, cert)
		eventually(t, "the pair is good again", func() error {
			if message := s.Status().Certificate.LastError; message != "" {
				return errors.New(message)
			}
			return nil
		})
	}
	if err := os.Remove(files.KeyFile); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the missing file is reported", func() error {
		if !strings.Contains(s.Status().Certificate.LastError, "no such file") {
			return fmt.Errorf("status says %q", s.Status().Certificate.LastError)
		}
		return nil
	})
	waitForName(t, s, "second")
	stillServed()
	if connections != 1 {
		t.Errorf("%d connections, want the first to stay", connections)
	}
}

func TestCertificate_PathsChangeLive(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, key := ca.issue(t, "first")
	first := pairFiles(t, t.TempDir(), cert, key)
	s := run(t, Options{Config: schema.Server{Authorization: everything, TLS: first}})

	missing := schema.ServerTLS{CertFile: filepath.Join(t.TempDir(), "tls.crt"), KeyFile: filepath.Join(t.TempDir(), "tls.key")}
	cfg := s.config
	cfg.TLS = missing
	err := s.Apply(cfg)
	if err == nil {
		t.Fatal("no error for files that are not there")
	}
	mustContain(t, err.Error(), missing.CertFile, "no such file", "server.tls.certFile")
	if err := s.Apply(cfg); err == nil {
		t.Error("applied again, files that are not there yet are no error")
	}
	waitForName(t, s, "first")

	// They are followed all the same.
	cert, key = ca.issue(t, "second")
	write(t, missing.CertFile, cert)
	write(t, missing.KeyFile, key)
	waitForName(t, s, "second")
	if err := s.Apply(cfg); err != nil {
		t.Errorf("the files are there: %v", err)
	}
	// What has been loaded once is not missing, though the next content is bad.
	write(t, missing.KeyFile, []byte("bad"))
	eventually(t, "the bad key is seen", func() error {
		if s.Status().Certificate.LastError == "" {
			return errors.New("no error is shown")
		}
		return nil
	})
	if err := s.Apply(cfg); err != nil {
		t.Errorf("the last good files stay in use: %v", err)
	}

	// The old files are not followed any more.
	cert, key = ca.issue(t, "third")
	write(t, first.KeyFile, key)
	write(t, first.CertFile, cert)

	cfg.TLS = schema.ServerTLS{}
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	if got := presented(t, s); !strings.HasPrefix(got.Subject.CommonName, "localhost@") {
		t.Errorf("shows %s", got.Subject)
	}
	if got := s.Status().Certificate.Source; got != selfSignedSource {
		t.Errorf("source is %s", got)
	}
	cfg.TLS = first
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	waitForName(t, s, "third")
}

// An error of files that are not asked for any more is not shown.
func TestCertificate_BackToSelfSigned(t *testing.T) {
	s := run(t, Options{Config: schema.Server{Authorization: everything}})
	cfg := s.config
	cfg.TLS = schema.ServerTLS{CertFile: "/nowhere/tls.crt", KeyFile: "/nowhere/tls.key", ClientCAFile: "/nowhere/ca.crt"}
	if err := s.Apply(cfg); err == nil {
		t.Fatal("no error for files that are not there")
	}
	if status := s.Status(); status.Certificate.LastError == "" || status.ClientCA.LastError == "" {
		t.Fatalf("status is %+v", status)
	}
	if err := s.Apply(s.config); err != nil {
		t.Fatal(err)
	}
	if status := s.Status(); status.Certificate.LastError != "" || status.ClientCA.LastError != "" {
		t.Errorf("status is %+v", status)
	}
}

func TestCertificate_FirstOneCannotBeRead(t *testing.T) {
	_, err := New(Options{Logger: discard, Config: schema.Server{TLS: schema.ServerTLS{CertFile: "/nowhere/tls.crt", KeyFile: "/nowhere/tls.key"}}})
	if err == nil {
		t.Fatal("no error")
	}
	mustContain(t, err.Error(), "/nowhere/tls.crt", "/nowhere/tls.key")
}

func TestCertificate_SelfSigned(t *testing.T) {
	for host, want := range map[string][]string{
		"0.0.0.0":   {"localhost", "127.0.0.1"},
		"::":        {"localhost", "127.0.0.1"},
		"127.0.0.1": {"localhost", "127.0.0.1"},
		"192.0.2.1": {"localhost", "127.0.0.1", "192.0.2.1"},
		"fd00::1":   {"localhost", "127.0.0.1", "fd00::1"},
	} {
		s, err := New(Options{Logger: discard, Config: schema.Server{BindAddress: host}})
		if err != nil {
			t.Fatal(err)
		}
		leaf := s.certificates.current.Load().Certificates[0].Leaf
		for _, name := range want {
			if err := leaf.VerifyHostname(name); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		}
		if names := len(leaf.DNSNames) + len(leaf.IPAddresses); names != len(want) {
			t.Errorf("%s: names are %v %v", host, leaf.DNSNames, leaf.IPAddresses)
		}
		if valid := time.Until(leaf.NotAfter); valid < 364*24*time.Hour || valid > 366*24*time.Hour {
			t.Errorf("%s: valid for %v", host, valid)
		}
	}
}

func TestCertificate_SelfSignedFollowsTheAddress(t *testing.T) {
	s, err := New(Options{Logger: discard, Config: schema.Server{BindAddress: "0.0.0.0"}})
	if err != nil {
		t.Fatal(err)
	}
	first := s.certificates.current.Load().Certificates[0].Leaf
	if err := s.Apply(schema.Server{BindAddress: "0.0.0.0", Profiling: true}); err != nil {
		t.Fatal(err)
	}
	if got := s.certificates.current.Load().Certificates[0].Leaf; !got.Equal(first) {
		t.Error("made anew without need")
	}
	if err := s.Apply(schema.Server{BindAddress: "192.0.2.1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.certificates.current.Load().Certificates[0].Leaf.VerifyHostname("192.0.2.1"); err != nil {
		t.Error(err)
	}
}

func TestCertificate_SelfSignedIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertificates(discard, newTrust(discard, nil))
		if err := c.setSelfSigned(true, "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.run(ctx) }()
		first := c.state()
		time.Sleep(time.Until(first.NotAfter.Add(-selfSignedRenewal)) - time.Minute)
		synctest.Wait()
		if got := c.state(); got != first {
			t.Errorf("renewed early: %+v", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		second := c.state()
		if !second.NotAfter.After(first.NotAfter.Add(300 * 24 * time.Hour)) {
			t.Errorf("not renewed: %+v", second)
		}
		if err := c.current.Load().Certificates[0].Leaf.VerifyHostname("192.0.2.1"); err != nil {
			t.Error(err)
		}
		// Once more, a year later.
		time.Sleep(time.Until(second.NotAfter.Add(-selfSignedRenewal)) + time.Minute)
		synctest.Wait()
		if got := c.state(); !got.NotAfter.After(second.NotAfter) {
			t.Errorf("not renewed again: %+v", got)
		}
		cancel()
		<-ended
	})
}

func TestTLS_VersionsAndCiphers(t *testing.T) {
	s := run(t, Options{Config: schema.Server{Authorization: everything}})
	handshake := func(change func(*tls.Config)) (tls.ConnectionState, error) {
		config := &tls.Config{InsecureSkipVerify: true}
		change(config)
		conn, err := tls.Dial("tcp", s.Addr().String(), config)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer conn.Close()
		return conn.ConnectionState(), nil
	}
	only := func(version uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version }
	}
	with := func(suites ...uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, suites }
	}
	accepts := func(what string, change func(*tls.Config), want bool) {
		t.Helper()
		if _, err := handshake(change); (err == nil) != want {
			t.Errorf("%s: accepted is not %v: %v", what, want, err)
		}
	}
	accepts("TLS 1.0", only(tls.VersionTLS10), false)
	accepts("TLS 1.1", only(tls.VersionTLS11), false)
	accepts("TLS 1.2", only(tls.VersionTLS12), true)
	accepts("TLS 1.3", only(tls.VersionTLS13), true)
	state, err := handshake(func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} })
	if err != nil || state.NegotiatedProtocol != "h2" {
		t.Errorf("protocol is %q: %v", state.NegotiatedProtocol, err)
	}

	cfg := s.config
	cfg.TLS = schema.ServerTLS{MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}}
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	accepts("suite in the list", with(tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384), true)
	accepts("suite not in the list", with(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), false)
	cfg.TLS = schema.ServerTLS{MinVersion: "VersionTLS13"}
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	accepts("TLS 1.2 below the minimum", only(tls.VersionTLS12), false)
	accepts("TLS 1.3", only(tls.VersionTLS13), true)
	for _, bad := range []schema.ServerTLS{{MinVersion: "VersionTLS11"}, {MinVersion: "1.3"}, {CipherSuites: []string{"ROT13"}}} {
		cfg.TLS = bad
		if err := s.Apply(cfg); err == nil || !strings.Contains(err.Error(), "server.tls.") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	accepts("TLS 1.2 after what was refused", only(tls.VersionTLS12), false)
}
