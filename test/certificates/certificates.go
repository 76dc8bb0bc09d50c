// Package certificates makes certificate authorities and requests for tests,
// and keeps their files as a kubelet keeps those of a mounted Secret.
package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Authority is a certificate authority.
type Authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	// CertPEM and KeyPEM are what its files hold.
	CertPEM, KeyPEM []byte
}

// New makes a self-signed authority that is valid from an hour ago for ten
// years; change, which may be nil, changes that.
func New(t testing.TB, name string, change func(*x509.Certificate)) *Authority {
	t.Helper()
	key := NewKey(t)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{
		Certificate: certificate,
		Key:         key,
		CertPEM:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:      keyPEM,
	}
}

// Verify tells whether the authority, and nobody else, vouches for a
// certificate at a time and for a usage.
func (a *Authority) Verify(certificate *x509.Certificate, at time.Time, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AddCert(a.Certificate)
	_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// NewKey makes an ECDSA key.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Request makes a request in PEM, signed with key.
func Request(t testing.TB, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// Parse reads a certificate in PEM, which nothing else may follow.
func Parse(t testing.TB, data []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 {
		t.Fatalf("not one block CERTIFICATE: %q", data)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// ToBeCA is the extension by which a request asks to become a CA.
func ToBeCA(t testing.TB) pkix.Extension {
	t.Helper()
	value, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: value}
}

// Mount is a directory that changes as a mounted Secret or ConfigMap does: its
// names lead through the symbolic link ..data, which is swapped for all of them at once.
type Mount struct {
	dir   string
	count int
}

// NewMount makes a mount that holds files, by name.
func NewMount(t testing.TB, files map[string][]byte) *Mount {
	t.Helper()
	m := &Mount{dir: t.TempDir()}
	m.Write(t, files)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), m.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Path of a file.
func (m *Mount) Path(name string) string { return filepath.Join(m.dir, name) }

// Write replaces the content of all files at once.
func (m *Mount) Write(t testing.TB, files map[string][]byte) {
	t.Helper()
	m.count++
	data, link := fmt.Sprintf("..data_%d", m.count), filepath.Join(m.dir, "..data")
	if err := os.Mkdir(filepath.Join(m.dir, data), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(m.dir, data, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.Readlink(link)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink(data, link+"_tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		t.Fatal(err)
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(m.dir, old)); err != nil {
			t.Fatal(err)
		}
	}
}

// Pair are the files of an authority, for a Mount.
func (a *Authority) Pair() map[string][]byte {
	return map[string][]byte{"tls.crt": a.CertPEM, "tls.key": a.KeyPEM}
}

// Bundle is the one file ca.crt, for a Mount.
func Bundle(content []byte) map[string][]byte { return map[string][]byte{"ca.crt": content} }
