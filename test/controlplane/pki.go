package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// PKI holds the certificates of one control plane. All fields are paths of PEM files.
type PKI struct {
	// CAFile and CAKeyFile sign every certificate, the API server's as well as
	// its clients'. They serve as the cluster's signing pair too.
	CAFile, CAKeyFile string
	// ServiceAccountKeyFile signs the tokens of service accounts.
	ServiceAccountKeyFile string

	servingCertFile, servingKeyFile string

	dir   string
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
	caPEM []byte

	mu     sync.Mutex
	issued map[string]keyPair
}

// keyPair is a certificate and its key, PEM encoded.
type keyPair struct{ cert, key []byte }

func (k keyPair) write(certPath, keyPath string) error {
	if err := os.WriteFile(certPath, k.cert, 0o600); err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	if err := os.WriteFile(keyPath, k.key, 0o600); err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return nil
}

// frontProxy is the name of the certificate that the API server takes the
// X-Remote-… headers from.
const frontProxy = "front-proxy"

// validity of all certificates: longer than any test, short enough to be harmless.
const validity = 30 * 24 * time.Hour

func newPKI(dir string) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	p := &PKI{
		CAFile:                filepath.Join(dir, "ca.crt"),
		CAKeyFile:             filepath.Join(dir, "ca.key"),
		ServiceAccountKeyFile: filepath.Join(dir, "sa.key"),
		servingCertFile:       filepath.Join(dir, "apiserver.crt"),
		servingKeyFile:        filepath.Join(dir, "apiserver.key"),
		dir:                   dir,
		issued:                map[string]keyPair{},
	}
	if err := p.writeAll(); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	return p, nil
}

func (p *PKI) writeAll() error {
	caPEM, caKeyPEM, err := p.makeCA()
	if err != nil {
		return err
	}
	saKeyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	serving, err := p.serving(apiServerProgram)
	if err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		p.CAFile:                caPEM,
		p.CAKeyFile:             caKeyPEM,
		p.ServiceAccountKeyFile: saKeyPEM,
		p.servingCertFile:       serving.cert,
		p.servingKeyFile:        serving.key,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *PKI) makeCA() (certPEM, keyPEM []byte, err error) {
	if p.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "wheelhouse-test-ca"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, p.caKey.Public(), p.caKey)
	if err != nil {
		return nil, nil, err
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, nil, err
	}
	p.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(p.caKey)
	return p.caPEM, keyPEM, err
}

// sign completes template and signs it with the CA, for a new key.
func (p *PKI) sign(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	now := time.Now()
	template.SerialNumber = big.NewInt(now.UnixNano())
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(validity)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.caKey)
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func (p *PKI) serving(name string) (keyPair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// Serving returns a new certificate for a server on loopback.
func (p *PKI) Serving(name string) (tls.Certificate, error) {
	pair, err := p.serving(name)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a serving certificate for %s: %w", name, err)
	}
	return tls.X509KeyPair(pair.cert, pair.key)
}

// FrontProxy returns the certificate with which a proxy tells the API server
// on whose behalf it sends a request, in the X-Remote-… headers.
func (p *PKI) FrontProxy() (tls.Certificate, error) {
	pair, err := p.client(frontProxy, nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.cert, pair.key)
}

// Pool holds the CA's certificate.
func (p *PKI) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca)
	return pool
}

// client returns the certificate of a user in groups, the same one each time,
// so that client-go shares connections between configs of one user.
func (p *PKI) client(user string, groups []string) (keyPair, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := strings.Join(append([]string{user}, groups...), "\x00")
	if pair, ok := p.issued[id]; ok {
		return pair, nil
	}
	pair, err := p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return keyPair{}, fmt.Errorf("make a certificate for user %s: %w", user, err)
	}
	p.issued[id] = pair
	return pair, nil
}
