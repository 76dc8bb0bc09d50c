// Package csrpolicy reads CertificateSigningRequests and knows what the built-in
// signers of Kubernetes accept (see "Kubernetes signers" in its documentation).
package csrpolicy

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	nodesGroup     = "system:nodes"
	nodeUserPrefix = "system:node:"
)

// What is wrong with a request. The texts are shown in its condition Failed.
var (
	errOrganization = errors.New("subject organization is not system:nodes")
	errCommonName   = errors.New("subject common name does not begin with system:node:") //nolint:revive,staticcheck // the end is that of a prefix
	errNoSAN        = errors.New("DNS or IP subjectAltName is required")
	errDNS          = errors.New("DNS subjectAltNames are not allowed")
	errEmail        = errors.New("Email subjectAltNames are not allowed") //nolint:staticcheck // clients may know the text
	errIP           = errors.New("IP subjectAltNames are not allowed")
	errURI          = errors.New("URI subjectAltNames are not allowed")
)

// Parse reads spec.request of a CertificateSigningRequest: the first PEM block.
func Parse(request []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("spec.request does not begin with a PEM block of type CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request is no PKCS #10 request: %w", err)
	}
	return parsed, nil
}

// HasCondition tells whether there is a condition of a type, whatever its status.
func HasCondition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == kind
	})
}

// Failed tells whether a signer has given the request up.
func Failed(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateFailed && (c.Status == corev1.ConditionTrue || c.Status == "")
	})
}

// CheckKubeletClient says what kubernetes.io/kube-apiserver-client-kubelet does not accept.
func CheckKubeletClient(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(request.Subject.Organization, []string{nodesGroup}):
		return errOrganization
	case len(request.DNSNames) > 0:
		return errDNS
	case len(request.EmailAddresses) > 0:
		return errEmail
	case len(request.IPAddresses) > 0:
		return errIP
	case len(request.URIs) > 0:
		return errURI
	case !strings.HasPrefix(request.Subject.CommonName, nodeUserPrefix):
		return errCommonName
	}
	return checkNodeUsages(usages, certificatesv1.UsageClientAuth)
}

// CheckKubeletServing says what kubernetes.io/kubelet-serving does not accept.
func CheckKubeletServing(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(request.Subject.Organization, []string{nodesGroup}):
		return errOrganization
	case len(request.DNSNames)+len(request.IPAddresses) == 0:
		return errNoSAN
	case len(request.EmailAddresses) > 0:
		return errEmail
	case len(request.URIs) > 0:
		return errURI
	}
	if err := checkNodeUsages(usages, certificatesv1.UsageServerAuth); err != nil {
		return err
	}
	if !strings.HasPrefix(request.Subject.CommonName, nodeUserPrefix) {
		return errCommonName
	}
	return nil
}

// CheckAPIServerClient says what kubernetes.io/kube-apiserver-client does not accept.
func CheckAPIServerClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

// checkNodeUsages wants the set of digital signature and auth, with or without
// key encipherment, which keys other than RSA have no use for.
func checkNodeUsages(usages []certificatesv1.KeyUsage, auth certificatesv1.KeyUsage) error {
	all := []certificatesv1.KeyUsage{auth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	missing := !slices.Contains(usages, auth) || !slices.Contains(usages, certificatesv1.UsageDigitalSignature)
	if missing || slices.ContainsFunc(usages, func(u certificatesv1.KeyUsage) bool { return !slices.Contains(all, u) }) {
		slices.Sort(all)
		return fmt.Errorf("usages did not match %v", all)
	}
	return nil
}
