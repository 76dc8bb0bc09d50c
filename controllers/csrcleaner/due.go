package csrcleaner

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// periods are how long requests are kept, by what has become of them.
type periods struct {
	issued, denied, failed, pending, approved time.Duration
}

func periodsOf(s *schema.CertificateSigningRequestCleanerController) *periods {
	return &periods{
		issued:   s.IssuedPeriod.Duration,
		denied:   s.DeniedPeriod.Duration,
		failed:   s.FailedPeriod.Duration,
		pending:  s.PendingPeriod.Duration,
		approved: s.ApprovedPeriod.Duration,
	}
}

// due says why a request is to be deleted at now, or nothing. A request that
// has none but conditions of other kinds is never due.
func due(request *certificatesv1.CertificateSigningRequest, keep periods, now time.Time) string {
	older := func(at metav1.Time, than time.Duration) bool { return !at.IsZero() && now.Sub(at.Time) > than }
	conditions := request.Status.Conditions
	if len(conditions) == 0 && older(request.CreationTimestamp, keep.pending) {
		return "it is still pending"
	}
	issued := len(request.Status.Certificate) > 0
	for i := range conditions {
		switch at := conditions[i].LastUpdateTime; conditions[i].Type {
		case certificatesv1.CertificateDenied:
			if older(at, keep.denied) {
				return "it was denied"
			}
		case certificatesv1.CertificateFailed:
			if older(at, keep.failed) {
				return "it has failed"
			}
		case certificatesv1.CertificateApproved:
			switch {
			case !issued && older(at, keep.approved):
				return "it was approved, but there is no certificate"
			case issued && older(at, keep.issued):
				return "its certificate was issued"
			case issued && expired(request.Status.Certificate, now):
				return "its certificate has expired"
			}
		}
	}
	return ""
}

// expired tells whether the first certificate in a PEM file is one whose time is over.
func expired(certificate []byte, now time.Time) bool {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return false
	}
	certificates, err := x509.ParseCertificates(block.Bytes)
	return err == nil && len(certificates) > 0 && certificates[0].NotAfter.Before(now)
}
