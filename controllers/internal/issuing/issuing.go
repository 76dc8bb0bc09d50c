// Package issuing makes certificates of certificate signing requests: it decides
// what of a request gets into one, and for how long it is valid. Whether a
// request may have one is decided elsewhere.
package issuing

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

const (
	// backdate lets machines use a certificate whose clocks are a little behind.
	backdate = 5 * time.Minute
	// shortest life that can be asked for (CertificateSigningRequestSpec.ExpirationSeconds).
	shortest = 10 * time.Minute
	// short lives are counted from now, not from backdate before.
	short = 8 * time.Hour
)

// serialNumbers is the number of serial numbers: RFC 5280 allows 20 octets.
var serialNumbers = new(big.Int).Lsh(big.NewInt(1), 128)

// Lifetime is what was asked for, in seconds, but 10 minutes at least and longest
// at most; longest when nothing was asked for.
func Lifetime(asked *int32, longest time.Duration) time.Duration {
	if asked == nil {
		return longest
	}
	wanted := time.Duration(*asked) * time.Second
	switch {
	case wanted > longest:
		return longest
	case wanted < shortest:
		return shortest
	}
	return wanted
}

// RequestError is the fault of a request, which no other CA and no other time mends.
type RequestError struct{ Err error }

// Error implements error.
func (e RequestError) Error() string { return e.Err.Error() }

// Unwrap gives errors.Is and As the reason.
func (e RequestError) Unwrap() error { return e.Err }

// Sign makes a certificate in PEM, which ca vouches for with its key. Of the
// request it takes the subject, the public key and the alternative names, and no
// other extension. The certificate is valid from five minutes before now, and
// never longer than the CA. The error is a RequestError when no certificate can
// ever be made of the request.
func Sign(ca *x509.Certificate, key crypto.Signer, request *x509.CertificateRequest, usages Usages, life time.Duration, now time.Time,
) ([]byte, error) {
	notBefore, notAfter, err := period(ca, life, now)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, serialNumbers)
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               request.Subject,
		DNSNames:              request.DNSNames,
		IPAddresses:           request.IPAddresses,
		EmailAddresses:        request.EmailAddresses,
		URIs:                  request.URIs,
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              usages.key,
		ExtKeyUsage:           usages.extended,
		BasicConstraintsValid: true,
		IsCA:                  false,
		AuthorityKeyId:        ca.SubjectKeyId,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, request.PublicKey, key)
	if err != nil {
		// The CA has signed before: there is something in the request that cannot be written.
		return nil, RequestError{fmt.Errorf("no certificate can be made of the request: %w", err)}
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// period in which a certificate is valid. It never outlives its CA.
func period(ca *x509.Certificate, life time.Duration, now time.Time) (notBefore, notAfter time.Time, err error) {
	notBefore, notAfter = now.Add(-backdate), now.Add(life)
	if life >= short {
		notAfter = notBefore.Add(life)
	}
	switch {
	case !notBefore.Before(ca.NotAfter):
		return notBefore, notAfter, fmt.Errorf("the signer has expired: NotAfter=%v", ca.NotAfter)
	case !now.Before(ca.NotAfter):
		return notBefore, notAfter, fmt.Errorf("refusing to sign a certificate that expired in the past: NotAfter=%v", ca.NotAfter)
	case now.Before(ca.NotBefore):
		return notBefore, notAfter, fmt.Errorf("the signer is not valid yet: NotBefore=%v", ca.NotBefore)
	}
	if !notAfter.Before(ca.NotAfter) {
		notAfter = ca.NotAfter
	}
	return notBefore, notAfter, nil
}
