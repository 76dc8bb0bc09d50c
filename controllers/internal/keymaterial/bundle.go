package keymaterial

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	certutil "k8s.io/client-go/util/cert"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// Bundle is a set of CA certificates.
type Bundle struct {
	// PEM is the text as it is in the file.
	PEM          string
	Certificates []*x509.Certificate
}

// NewRootCA follows the bundle by which the API server is verified: that in
// file, or, when file is empty, the one that this process itself uses.
func NewRootCA(env controller.Env, file string, onChange func()) (*Source[*Bundle], error) {
	return followRootCA(env, file, parseBundle, onChange)
}

// NewOptionalRootCA is NewRootCA for whoever can do without: as long as neither
// file nor this process has a bundle, since it trusts the system's certificates,
// an empty one is in use. One that there was once stays in use.
func NewOptionalRootCA(env controller.Env, file string, onChange func()) (*Source[*Bundle], error) {
	none := file == ""
	parse := func(data []byte, now time.Time) (*Bundle, []string, error) {
		if none && len(data) == 0 {
			return &Bundle{}, []string{NoRootCA(file, data)}, nil
		}
		bundle, warnings, err := parseBundle(data, now)
		none = none && err != nil
		return bundle, warnings, err
	}
	return followRootCA(env, file, parse, onChange)
}

func followRootCA(
	env controller.Env, file string, parse func(data []byte, now time.Time) (*Bundle, []string, error), onChange func(),
) (*Source[*Bundle], error) {
	o := Options[*Bundle]{
		Name:     "root CA",
		Parse:    func(contents [][]byte, now time.Time) (*Bundle, []string, error) { return parse(contents[0], now) },
		Validity: (*Bundle).validity,
		Remedy:   "give a PEM file with the CA certificates that verify the API server, and nothing else",
		OnChange: onChange,
	}
	if file == "" {
		return newSource(env, o, &serverCA{get: env.ServerCA})
	}
	o.Files = []File{{Path: file}}
	return New(env, o)
}

// NoRootCA says why there is nothing to follow for NewRootCA, or nothing.
func NoRootCA(file string, serverCA []byte) string {
	if file != "" || len(serverCA) > 0 {
		return ""
	}
	return "rootCAFile is not set, and this process verifies the API server by the system's certificates: set rootCAFile"
}

// parseBundle refuses what must not be published: a key that came along above all.
func parseBundle(data []byte, now time.Time) (*Bundle, []string, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, errors.New("it is empty")
	}
	if bytes.Contains(data, []byte("PRIVATE KEY-----")) {
		return nil, nil, errors.New("it holds a private key, which everybody could read")
	}
	if !utf8.Valid(data) {
		return nil, nil, errors.New("it is no text")
	}
	if problem := strayBlock(data); problem != "" {
		return nil, nil, errors.New(problem)
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, nil, fmt.Errorf("it is no PEM file of certificates: %w", err)
	}
	bundle := &Bundle{PEM: string(data), Certificates: certs}
	var warnings []string
	for _, cert := range certs {
		if problem := notCA(cert); problem != "" {
			warnings = append(warnings, fmt.Sprintf("certificate %q %s: TLS clients may accept it, ClusterTrustBundles do not", cert.Subject, problem))
		}
		if err := (&loaded[struct{}]{notBefore: cert.NotBefore, notAfter: cert.NotAfter}).check(now); err != nil {
			warnings = append(warnings, fmt.Sprintf("certificate %q: %v", cert.Subject, err))
		}
	}
	return bundle, warnings, nil
}

// strayBlock finds a certificate that parsers would silently leave out.
func strayBlock(data []byte) string {
	begun := strings.Count("\n"+string(data), "\n-----BEGIN ")
	read := 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		read++
	}
	if read < begun {
		return fmt.Sprintf("only %d of %d PEM blocks in it can be read", read, begun)
	}
	return ""
}

// validity is from when the first certificate can be used until the last one cannot.
func (b *Bundle) validity() (notBefore, notAfter time.Time) {
	for i, cert := range b.Certificates {
		if i == 0 || cert.NotBefore.Before(notBefore) {
			notBefore = cert.NotBefore
		}
		if i == 0 || cert.NotAfter.After(notAfter) {
			notAfter = cert.NotAfter
		}
	}
	return notBefore, notAfter
}

// notCA says why cert cannot have issued another one, by the rules of
// x509.Certificate.CheckSignatureFrom.
func notCA(cert *x509.Certificate) string {
	switch {
	case cert.Version == 3 && !cert.BasicConstraintsValid, cert.BasicConstraintsValid && !cert.IsCA:
		return "is not a CA certificate (basicConstraints CA:TRUE is missing)"
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return "is not a CA certificate (its keyUsage does not include keyCertSign)"
	}
	return ""
}
