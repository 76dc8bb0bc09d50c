package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

// authority signs certificates of test servers and clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate for name and its key, as PEM.
func (a *authority) issue(t *testing.T, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM
}

// serve starts a TLS server with HTTP/2 that asks for client certificates.
func (a *authority) serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	certPEM, keyPEM := a.issue(t, "server")
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that a reload breaks off
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// files is a kubeconfig with everything in files beside it.
type files struct {
	t   *testing.T
	dir string
	clientcmdapi.Config
}

func newFiles(t *testing.T, server string) *files {
	f := &files{t: t, dir: t.TempDir(), Config: *clientcmdapi.NewConfig()}
	f.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: "ca.crt"}
	f.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
	f.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	f.CurrentContext = "x"
	return f
}

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

func (f *files) write(name string, content []byte) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// kubeconfig writes the kubeconfig itself and returns its path.
func (f *files) kubeconfig() string {
	f.t.Helper()
	content, err := clientcmd.Write(f.Config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("kubeconfig", content)
	return f.path("kubeconfig")
}

func newBuilder(t *testing.T, o Options) *Builder {
	t.Helper()
	if o.Fence == nil {
		o.Fence = NewFence(nil)
		o.Fence.OpenAlways()
	}
	o.Logger = slog.New(slog.DiscardHandler)
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}
