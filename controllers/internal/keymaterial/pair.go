package keymaterial

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// SigningPair is a CA certificate with its private key.
type SigningPair struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// NewSigningPair follows a CA, of which certFile holds the one certificate and
// keyFile the private key.
func NewSigningPair(env controller.Env, name, certFile, keyFile string, onChange func()) (*Source[*SigningPair], error) {
	return New(env, Options[*SigningPair]{
		Name:  name,
		Files: []File{{Path: certFile}, {Path: keyFile, Secret: true}},
		Parse: func(contents [][]byte, _ time.Time) (*SigningPair, []string, error) {
			pair, err := parsePair(contents[0], contents[1])
			return pair, nil, err
		},
		Validity: (*SigningPair).validity,
		Remedy: "give the CA's certificate, one only, and the private key that belongs to it, " +
			"in PEM files that are replaced together",
		OnChange: onChange,
	})
}

func parsePair(certPEM, keyPEM []byte) (*SigningPair, error) {
	certs, err := certutil.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if len(certs) != 1 {
		return nil, fmt.Errorf("there are %d certificates, and it cannot be told which one signs", len(certs))
	}
	if problem := notCA(certs[0]); problem != "" {
		return nil, fmt.Errorf("the certificate %s", problem)
	}
	key, err := ParsePrivateKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	public, ok := certs[0].PublicKey.(interface{ Equal(x crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the key does not match the certificate")
	}
	// A trial shows what a key cannot sign, such as one of too few bits.
	trial := &x509.Certificate{SerialNumber: big.NewInt(1)}
	if _, err := x509.CreateCertificate(rand.Reader, trial, certs[0], key.Public(), key); err != nil {
		return nil, fmt.Errorf("the key cannot sign certificates: %w", err)
	}
	return &SigningPair{Certificate: certs[0], Key: key}, nil
}

// ParsePrivateKey reads the first private key of a PEM file: PKCS #1, PKCS #8 or
// SEC 1, not encrypted.
func ParsePrivateKey(data []byte) (crypto.Signer, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		if text := string(data); strings.Contains(text, "ENCRYPTED") {
			return nil, errors.New("it is encrypted; decrypt it")
		}
		return nil, errors.New("there is no private key in PEM, of RSA, ECDSA or Ed25519, in it")
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", parsed)
	}
	return signer, nil
}

func (p *SigningPair) validity() (notBefore, notAfter time.Time) {
	return p.Certificate.NotBefore, p.Certificate.NotAfter
}
