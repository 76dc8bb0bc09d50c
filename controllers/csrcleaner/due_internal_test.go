package csrcleaner

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// certificateUntil is one in PEM that expires at a time.
func certificateUntil(t testing.TB, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "c"}, NotBefore: end.Add(-1000 * time.Hour), NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestDue(t *testing.T) {
	t.Parallel()
	section, ok := schema.CertificateSigningRequestCleanerControllerSection().New().(*schema.CertificateSigningRequestCleanerController)
	if !ok {
		t.Fatal("not the section of this controller")
	}
	keep := periodsOf(section)
	type kind = certificatesv1.RequestConditionType
	condition := func(of kind, ago time.Duration) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: of, LastUpdateTime: metav1.NewTime(noon.Add(-ago))}
	}
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	hour, day := time.Hour, 24*time.Hour
	valid, past := certificateUntil(t, noon.Add(hour)), certificateUntil(t, noon.Add(-time.Second))
	withText := func(certificate []byte) []byte { return append([]byte("an explanation\n"), certificate...) }
	untimed := certificatesv1.CertificateSigningRequestCondition{Type: approved}
	for _, test := range []struct {
		name        string
		age         time.Duration
		certificate []byte
		conditions  []certificatesv1.CertificateSigningRequestCondition
		want        bool
	}{
		{"pending", day, nil, nil, false},
		{"pending for long", day + 1, nil, nil, true},
		{"issued", hour, valid, []certificatesv1.CertificateSigningRequestCondition{condition(approved, hour)}, false},
		{"issued long ago", hour, valid, []certificatesv1.CertificateSigningRequestCondition{condition(approved, hour+1)}, true},
		{"issued and expired", 0, past, []certificatesv1.CertificateSigningRequestCondition{condition(approved, 0)}, true},
		{"expired, after some text", 0, withText(past), []certificatesv1.CertificateSigningRequestCondition{condition(approved, 0)}, true},
		{"the issuer has expired", 0, slices.Concat(valid, past), []certificatesv1.CertificateSigningRequestCondition{condition(approved, 0)}, false},
		{"expired, its issuer not", 0, slices.Concat(past, valid), []certificatesv1.CertificateSigningRequestCondition{condition(approved, 0)}, true},
		{"expired without approval", day + 1, past, []certificatesv1.CertificateSigningRequestCondition{condition("Foo", 0)}, false},
		{"no certificate in it", 0, []byte("none"), []certificatesv1.CertificateSigningRequestCondition{condition(approved, 0)}, false},
		{"no certificate in it, long ago", 0, []byte("none"), []certificatesv1.CertificateSigningRequestCondition{condition(approved, hour+1)}, true},
		{"approved", 2 * day, nil, []certificatesv1.CertificateSigningRequestCondition{condition(approved, day)}, false},
		{"approved long ago", 2 * day, nil, []certificatesv1.CertificateSigningRequestCondition{condition(approved, day+1)}, true},
		{"denied", 2 * day, nil, []certificatesv1.CertificateSigningRequestCondition{condition(denied, hour)}, false},
		{"denied long ago", 2 * hour, nil, []certificatesv1.CertificateSigningRequestCondition{condition(denied, hour+1)}, true},
		{"failed", 2 * day, nil, []certificatesv1.CertificateSigningRequestCondition{condition(approved, 2*hour), condition(failed, hour)}, false},
		{"failed long ago", 3 * hour, nil, []certificatesv1.CertificateSigningRequestCondition{condition(approved, 2*hour), condition(failed, hour+1)}, true},
		{"failed, approved very long ago", 3 * day, nil,
			[]certificatesv1.CertificateSigningRequestCondition{condition(approved, day+1), condition(failed, 0)}, true},
		{"a condition of another kind", 30 * day, nil, []certificatesv1.CertificateSigningRequestCondition{condition("Foo", 30*day)}, false},
		{"a condition without a time", 30 * day, valid, []certificatesv1.CertificateSigningRequestCondition{untimed}, false},
		{"a condition without a time, expired", 30 * day, past, []certificatesv1.CertificateSigningRequestCondition{untimed}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			request := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.NewTime(noon.Add(-test.age))},
				Status:     certificatesv1.CertificateSigningRequestStatus{Conditions: test.conditions, Certificate: test.certificate},
			}
			if why := due(request, *keep, noon); (why != "") != test.want {
				t.Errorf("due because %q, want due: %t", why, test.want)
			}
		})
	}
}

// Nothing that a signer writes ends the controller, and only what is a
// certificate expires.
func FuzzExpired(f *testing.F) {
	f.Add(certificateUntil(f, noon.Add(-time.Hour)))
	f.Add(certificateUntil(f, noon.Add(time.Hour)))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, certificate []byte) {
		if !expired(certificate, noon) {
			return
		}
		block, _ := pem.Decode(certificate)
		if block == nil {
			t.Fatalf("%q has expired, although there is none", certificate)
		}
		if parsed, err := x509.ParseCertificates(block.Bytes); err != nil || !parsed[0].NotAfter.Before(noon) {
			t.Fatalf("%q has expired: %v", certificate, err)
		}
	})
}
