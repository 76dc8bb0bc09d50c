package issuing

import (
	"crypto/x509"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Usages are the extensions keyUsage and extKeyUsage of RFC 5280.
type Usages struct {
	key      x509.KeyUsage
	extended []x509.ExtKeyUsage
}

// UsagesOf translates spec.usages of a CertificateSigningRequest; one that nobody
// knows is an error.
func UsagesOf(usages []certificatesv1.KeyUsage) (Usages, error) {
	var found Usages
	for _, usage := range usages {
		key, isKey := keyUsage(usage)
		extended, isExtended := extKeyUsage(usage)
		switch {
		case isKey:
			found.key |= key
		case isExtended:
			found.extended = append(found.extended, extended)
		default:
			return Usages{}, fmt.Errorf("unknown usage: %q", usage)
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
