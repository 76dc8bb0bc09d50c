package csrsigning

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/certificate/csr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
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

// lifetime is what was asked for, within shortest and longest.
func lifetime(asked *int32, longest time.Duration) time.Duration {
	if asked == nil {
		return longest
	}
	wanted := csr.ExpirationSecondsToDuration(*asked)
	switch {
	case wanted > longest:
		return longest
	case wanted < shortest:
		return shortest
	}
	return wanted
}

// requestError is the fault of a request, which no other CA and no other time mends.
type requestError struct{ error }

// Unwrap gives errors.Is and As the reason.
func (e requestError) Unwrap() error { return e.error }

// sign makes a certificate in PEM. Of the request it takes the subject, the
// public key and the alternative names, and no other extension.
func sign(ca *keymaterial.SigningPair, request *x509.CertificateRequest, usages keyUsages, life time.Duration, now time.Time) ([]byte, error) {
	notBefore, notAfter, err := period(ca.Certificate, life, now)
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
		AuthorityKeyId:        ca.Certificate.SubjectKeyId,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate, request.PublicKey, ca.Key)
	if err != nil {
		// The CA has signed before: there is something in the request that cannot be written.
		return nil, requestError{fmt.Errorf("no certificate can be made of the request: %w", err)}
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

// keyUsages are the extensions keyUsage and extKeyUsage of RFC 5280.
type keyUsages struct {
	key      x509.KeyUsage
	extended []x509.ExtKeyUsage
}

// usagesOf translates spec.usages; one that nobody knows is an error.
func usagesOf(usages []certificatesv1.KeyUsage) (keyUsages, error) {
	var found keyUsages
	for _, usage := range usages {
		key, isKey := keyUsage(usage)
		extended, isExtended := extKeyUsage(usage)
		switch {
		case isKey:
			found.key |= key
		case isExtended:
			found.extended = append(found.extended, extended)
		default:
			return keyUsages{}, fmt.Errorf("unknown usage: %q", usage)
		}
	}
	slices.Sort(found.extended)
	found.extended = slices.Compact(found.extended)
	return found, nil
}

func keyUsage(usage certificatesv1.KeyUsage) (x509.KeyUsage, bool) {
	switch usage {
	case certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature:
		return x509.KeyUsageDigitalSignature, true
	case certificatesv1.UsageContentCommitment:
		return x509.KeyUsageContentCommitment, true
	case certificatesv1.UsageKeyEncipherment:
		return x509.KeyUsageKeyEncipherment, true
	case certificatesv1.UsageKeyAgreement:
		return x509.KeyUsageKeyAgreement, true
	case certificatesv1.UsageDataEncipherment:
		return x509.KeyUsageDataEncipherment, true
	case certificatesv1.UsageCertSign:
		return x509.KeyUsageCertSign, true
	case certificatesv1.UsageCRLSign:
		return x509.KeyUsageCRLSign, true
	case certificatesv1.UsageEncipherOnly:
		return x509.KeyUsageEncipherOnly, true
	case certificatesv1.UsageDecipherOnly:
		return x509.KeyUsageDecipherOnly, true
	}
	return 0, false
}

func extKeyUsage(usage certificatesv1.KeyUsage) (x509.ExtKeyUsage, bool) {
	switch usage {
	case certificatesv1.UsageAny:
		return x509.ExtKeyUsageAny, true
	case certificatesv1.UsageServerAuth:
		return x509.ExtKeyUsageServerAuth, true
	case certificatesv1.UsageClientAuth:
		return x509.ExtKeyUsageClientAuth, true
	case certificatesv1.UsageCodeSigning:
		return x509.ExtKeyUsageCodeSigning, true
	case certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME:
		return x509.ExtKeyUsageEmailProtection, true
	case certificatesv1.UsageIPsecEndSystem:
		return x509.ExtKeyUsageIPSECEndSystem, true
	case certificatesv1.UsageIPsecTunnel:
		return x509.ExtKeyUsageIPSECTunnel, true
	case certificatesv1.UsageIPsecUser:
		return x509.ExtKeyUsageIPSECUser, true
	case certificatesv1.UsageTimestamping:
		return x509.ExtKeyUsageTimeStamping, true
	case certificatesv1.UsageOCSPSigning:
		return x509.ExtKeyUsageOCSPSigning, true
	case certificatesv1.UsageMicrosoftSGC:
		return x509.ExtKeyUsageMicrosoftServerGatedCrypto, true
	case certificatesv1.UsageNetscapeSGC:
		return x509.ExtKeyUsageNetscapeServerGatedCrypto, true
	}
	return 0, false
}
