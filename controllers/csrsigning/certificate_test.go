package csrsigning

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/csrpolicy"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
)

func TestLifetimes(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		asked   *int32
		longest time.Duration
		want    time.Duration
	}{
		{nil, day, day},
		{ptr.To[int32](86400), day, day},
		{ptr.To[int32](172800), day, day},
		{ptr.To[int32](72000), day, 20 * time.Hour},
		{ptr.To[int32](600), day, 10 * time.Minute},
		{ptr.To[int32](60), day, 10 * time.Minute},
		{ptr.To[int32](-1), day, 10 * time.Minute},
		{ptr.To[int32](3600), time.Minute, time.Minute}, // the longest life goes first
	} {
		if got := lifetime(test.asked, test.longest); got != test.want {
			t.Errorf("%v of at most %s: %s, want %s", ptr.Deref(test.asked, 0), test.longest, got, test.want)
		}
	}
}

func TestPeriods(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		life        time.Duration
		starts      time.Duration // of the CA, from now
		ends        time.Duration
		want        time.Duration // of the certificate, from now
		wantProblem string
	}{
		"long":                         {24 * time.Hour, -time.Hour, 1000 * time.Hour, 24*time.Hour - 5*time.Minute, ""},
		"eight hours":                  {8 * time.Hour, -time.Hour, 1000 * time.Hour, 8*time.Hour - 5*time.Minute, ""},
		"short":                        {2 * time.Hour, -time.Hour, 1000 * time.Hour, 2 * time.Hour, ""},
		"beyond the CA":                {24 * time.Hour, -time.Hour, time.Hour, time.Hour, ""},
		"as long as the CA":            {time.Hour, -time.Hour, time.Hour, time.Hour, ""},
		"a CA that has just ended":     {time.Hour, -time.Hour, 0, 0, "refusing to sign a certificate that expired in the past: NotAfter="},
		"a CA that ended 4 min ago":    {time.Hour, -time.Hour, -4 * time.Minute, 0, "refusing to sign a certificate that expired in the past: NotAfter="},
		"a CA that ended 5 min ago":    {time.Hour, -time.Hour, -5 * time.Minute, 0, "the signer has expired: NotAfter="},
		"a CA that is not valid yet":   {time.Hour, time.Minute, 1000 * time.Hour, 0, "the signer is not valid yet: NotBefore="},
		"a CA that has become valid":   {time.Hour, 0, 1000 * time.Hour, time.Hour, ""},
		"a CA that ends in one second": {time.Hour, -time.Hour, time.Second, time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ca := &x509.Certificate{NotBefore: now.Add(test.starts), NotAfter: now.Add(test.ends)}
			notBefore, notAfter, err := period(ca, test.life, now)
			if test.wantProblem != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.wantProblem) {
					t.Errorf("error %v, want %q", err, test.wantProblem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := notAfter.Sub(now); got != test.want {
				t.Errorf("ends in %s, want %s", got, test.want)
			}
			if got := now.Sub(notBefore); got != 5*time.Minute {
				t.Errorf("begins %s ago", got)
			}
		})
	}
}

func TestUsages(t *testing.T) {
	every := []certificatesv1.KeyUsage{
		"signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment", "cert sign",
		"crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing", "email protection", "s/mime",
		"ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing", "microsoft sgc", "netscape sgc",
	}
	usages, err := usagesOf(every)
	if err != nil {
		t.Fatal(err)
	}
	if want := x509.KeyUsage(1<<9 - 1); usages.key != want {
		t.Errorf("key usages %b, want all: %b", usages.key, want)
	}
	if len(usages.extended) != 12 || !slices.IsSorted(usages.extended) {
		t.Errorf("extended usages %v, want 12 in their order", usages.extended)
	}
	if _, err := usagesOf([]certificatesv1.KeyUsage{"client auth", "world domination"}); err == nil || !strings.Contains(err.Error(), "world domination") {
		t.Errorf("error %v of an unknown usage", err)
	}
	if usages, err := usagesOf(nil); err != nil || usages.key != 0 || usages.extended != nil {
		t.Errorf("of no usages: %+v, error %v", usages, err)
	}
}

// basicConstraints is what a request would have to ask for to become a CA.
func basicConstraints(t testing.TB) pkix.Extension {
	t.Helper()
	value, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: value}
}

func pairOf(ca *certificates.Authority) *keymaterial.SigningPair {
	return &keymaterial.SigningPair{Certificate: ca.Certificate, Key: ca.Key}
}

func parseCertificate(t testing.TB, data []byte) *x509.Certificate {
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

func TestCertificates(t *testing.T) {
	ca := certificates.New(t, "ca", func(c *x509.Certificate) { c.SubjectKeyId = []byte{1, 2, 3} })
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{
		Subject: pkix.Name{
			CommonName: "c", Organization: []string{"o1", "o2"},
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "a-uid"}},
		},
		DNSNames:        []string{"a.example.com"},
		IPAddresses:     []net.IP{{10, 0, 0, 1}},
		EmailAddresses:  []string{"a@example.com"},
		URIs:            []*url.URL{{Scheme: "spiffe", Host: "a"}},
		ExtraExtensions: []pkix.Extension{basicConstraints(t), {Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}}},
	}
	now := time.Now()
	for name, requestPEM := range map[string][]byte{
		"ECDSA":   certificates.Request(t, template, certificates.NewKey(t)),
		"RSA":     certificates.Request(t, template, rsaKey),
		"Ed25519": certificates.Request(t, template, edKey),
	} {
		t.Run(name, func(t *testing.T) {
			request, err := csrpolicy.Parse(requestPEM)
			if err != nil {
				t.Fatal(err)
			}
			usages, err := usagesOf([]certificatesv1.KeyUsage{"digital signature", "client auth"})
			if err != nil {
				t.Fatal(err)
			}
			signed, err := sign(pairOf(ca), request, usages, time.Hour, now)
			if err != nil {
				t.Fatal(err)
			}
			certificate := parseCertificate(t, signed)
			if err := ca.Verify(certificate, now, x509.ExtKeyUsageClientAuth); err != nil {
				t.Error(err)
			}
			if err := ca.Verify(certificate, now, x509.ExtKeyUsageServerAuth); err == nil {
				t.Error("good for a server too")
			}
			if certificate.IsCA || !certificate.BasicConstraintsValid || len(certificate.SubjectKeyId) > 0 {
				t.Errorf("CA %t, subject key %v", certificate.IsCA, certificate.SubjectKeyId)
			}
			if !slices.Equal(certificate.AuthorityKeyId, []byte{1, 2, 3}) {
				t.Errorf("authority key %v", certificate.AuthorityKeyId)
			}
			if certificate.Subject.String() != "CN=c,O=o1+O=o2" {
				t.Errorf("subject %s: attributes that no signer checks are left out", certificate.Subject)
			}
			if !slices.Equal(certificate.DNSNames, template.DNSNames) || len(certificate.IPAddresses) != 1 ||
				len(certificate.EmailAddresses) != 1 || len(certificate.URIs) != 1 {
				t.Errorf("names: %v %v %v %v", certificate.DNSNames, certificate.IPAddresses, certificate.EmailAddresses, certificate.URIs)
			}
			for _, extension := range certificate.Extensions {
				if extension.Id.String() == "1.2.3.4" {
					t.Error("an extension of the request is in the certificate")
				}
			}
			if certificate.SerialNumber.Sign() < 0 || certificate.SerialNumber.BitLen() > 128 {
				t.Errorf("serial number %s", certificate.SerialNumber)
			}
		})
	}
}

func TestWhatCannotBeWrittenIsTheFaultOfTheRequest(t *testing.T) {
	ca := certificates.New(t, "ca", nil)
	request, err := csrpolicy.Parse(certificates.Request(t, &x509.CertificateRequest{}, certificates.NewKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	request.Subject.CommonName = "\xff" // as of a T61String
	_, err = sign(pairOf(ca), request, keyUsages{}, time.Hour, time.Now())
	var refused requestError
	if !errors.As(err, &refused) {
		t.Errorf("error %v, want one of the request", err)
	}
	if _, err = sign(pairOf(ca), request, keyUsages{}, time.Hour, ca.Certificate.NotAfter.Add(time.Hour)); errors.As(err, &refused) {
		t.Errorf("the end of the CA is the fault of the request: %v", err)
	}
}

func FuzzSign(f *testing.F) {
	ca := certificates.New(f, "ca", nil)
	key := certificates.NewKey(f)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	names := make([]string, 1000)
	for i := range names {
		names[i] = strings.Repeat("a", 60) + ".example.com"
	}
	f.Add(certificates.Request(f, &x509.CertificateRequest{DNSNames: names}, key))
	f.Add(certificates.Request(f, &x509.CertificateRequest{URIs: []*url.URL{{Scheme: "x", Host: "y"}}}, edKey))
	f.Add(certificates.Request(f, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{basicConstraints(f)}}, key))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n"))
	usages, err := usagesOf([]certificatesv1.KeyUsage{"digital signature", "client auth"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		request, err := csrpolicy.Parse(data)
		if err != nil {
			return
		}
		now := time.Now()
		signed, err := sign(pairOf(ca), request, usages, time.Hour, now)
		if err != nil {
			return
		}
		certificate := parseCertificate(t, signed)
		if certificate.IsCA || certificate.NotAfter.After(now.Add(time.Hour)) || certificate.KeyUsage != x509.KeyUsageDigitalSignature {
			t.Errorf("too much is granted: %+v", certificate)
		}
		if err := certificate.CheckSignatureFrom(ca.Certificate); err != nil {
			t.Error(err)
		}
	})
}
