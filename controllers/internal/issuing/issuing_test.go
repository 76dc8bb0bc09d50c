package issuing

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
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
	"unicode/utf8"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/csrpolicy"
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
		if got := Lifetime(test.asked, test.longest); got != test.want {
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
	usages, err := UsagesOf(every)
	if err != nil {
		t.Fatal(err)
	}
	if want := x509.KeyUsage(1<<9 - 1); usages.key != want {
		t.Errorf("key usages %b, want all: %b", usages.key, want)
	}
	if len(usages.extended) != 12 || !slices.IsSorted(usages.extended) {
		t.Errorf("extended usages %v, want 12 in their order", usages.extended)
	}
	if _, err := UsagesOf([]certificatesv1.KeyUsage{"client auth", "world domination"}); err == nil || !strings.Contains(err.Error(), "world domination") {
		t.Errorf("error %v of an unknown usage", err)
	}
	if usages, err := UsagesOf(nil); err != nil || usages.key != 0 || usages.extended != nil {
		t.Errorf("of no usages: %+v, error %v", usages, err)
	}
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
		ExtraExtensions: []pkix.Extension{certificates.ToBeCA(t), {Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}}},
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
			usages, err := UsagesOf([]certificatesv1.KeyUsage{"digital signature", "client auth"})
			if err != nil {
				t.Fatal(err)
			}
			signed, err := Sign(ca.Certificate, ca.Key, request, usages, time.Hour, now)
			if err != nil {
				t.Fatal(err)
			}
			certificate := certificates.Parse(t, signed)
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
	readable := func(der []byte) *x509.CertificateRequest {
		request, err := x509.ParseCertificateRequest(der)
		if err != nil {
			t.Fatal(err)
		}
		return request
	}
	odd := readable(derOf(t, certificates.Request(t, &x509.CertificateRequest{}, certificates.NewKey(t))))
	odd.Subject.CommonName = "\xff" // as of a T61String
	for name, request := range map[string]*x509.CertificateRequest{
		"a name that is not UTF-8": odd,
		"a key of DSA":             readable(requestFor(t, dsa(t), []byte{2, 1, 4})),
		"a key of unknown kind":    readable(requestFor(t, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 3, 4}}, []byte{1})),
	} {
		_, err := Sign(ca.Certificate, ca.Key, request, Usages{}, time.Hour, time.Now())
		if _, ok := errors.AsType[RequestError](err); !ok {
			t.Errorf("%s: error %v, want one of the request", name, err)
		}
		_, err = Sign(ca.Certificate, ca.Key, request, Usages{}, time.Hour, ca.Certificate.NotAfter.Add(time.Hour))
		if _, ok := errors.AsType[RequestError](err); err == nil || ok {
			t.Errorf("%s: the end of the CA is the fault of the request: %v", name, err)
		}
	}
}

// derOf a PEM block.
func derOf(t testing.TB, data []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no PEM: %q", data)
	}
	return block.Bytes
}

// dsa is the algorithm of keys that x509 reads, but does not write.
func dsa(t testing.TB) pkix.AlgorithmIdentifier {
	t.Helper()
	parameters, err := asn1.Marshal(struct{ P, Q, G int }{23, 11, 2})
	if err != nil {
		t.Fatal(err)
	}
	return pkix.AlgorithmIdentifier{
		Algorithm:  asn1.ObjectIdentifier{1, 2, 840, 10040, 4, 1},
		Parameters: asn1.RawValue{FullBytes: parameters},
	}
}

// requestFor any public key, with a signature that nobody made.
func requestFor(t testing.TB, algorithm pkix.AlgorithmIdentifier, key []byte) []byte {
	t.Helper()
	type publicKey struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	type info struct {
		Version    int
		Subject    pkix.RDNSequence
		PublicKey  publicKey
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	der, err := asn1.Marshal(struct {
		Info      info
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		info{PublicKey: publicKey{algorithm, asn1.BitString{Bytes: key, BitLength: 8 * len(key)}}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}},
		asn1.BitString{Bytes: []byte{1}, BitLength: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// addRequests gives a fuzz target requests of all sorts, in PEM and in DER.
func addRequests(f *testing.F) {
	f.Helper()
	names := make([]string, 1000)
	for i := range names {
		names[i] = strings.Repeat("a", 60) + ".example.com"
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	smallRSA, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		f.Fatal(err)
	}
	key := certificates.NewKey(f)
	everything := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}, Country: []string{"DE"}, SerialNumber: "1"},
		DNSNames: []string{"n1"}, IPAddresses: []net.IP{{10, 0, 0, 1}, net.ParseIP("fd00::1")},
		EmailAddresses: []string{"a@example.com"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "a", Path: "/b"}},
	}
	requests := [][]byte{
		certificates.Request(f, everything, key),
		certificates.Request(f, &x509.CertificateRequest{DNSNames: names}, key),
		certificates.Request(f, &x509.CertificateRequest{URIs: []*url.URL{{Scheme: "x", Host: "y"}}}, edKey),
		certificates.Request(f, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{certificates.ToBeCA(f)}}, key),
		certificates.Request(f, &x509.CertificateRequest{}, smallRSA),
	}
	for _, curve := range []elliptic.Curve{elliptic.P224(), elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			f.Fatal(err)
		}
		requests = append(requests, certificates.Request(f, &x509.CertificateRequest{}, key))
	}
	for _, request := range requests {
		f.Add(request)
		f.Add(derOf(f, request))
	}
	f.Add(requestFor(f, dsa(f), []byte{2, 1, 4}))
	f.Add(requestFor(f, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 3, 4}}, []byte{1}))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMIIB"))
	f.Add(append(certificates.Request(f, everything, key), certificates.Request(f, everything, edKey)...))
}

// Whatever somebody asks for, a certificate grants no more than was allowed.
func FuzzSign(f *testing.F) {
	ca := certificates.New(f, "ca", nil)
	addRequests(f)
	usages, err := UsagesOf([]certificatesv1.KeyUsage{"digital signature", "client auth"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		request, err := csrpolicy.Parse(data)
		if err != nil {
			request, err = x509.ParseCertificateRequest(data)
		}
		if err != nil {
			return
		}
		now := time.Now()
		signed, err := Sign(ca.Certificate, ca.Key, request, usages, time.Hour, now)
		if err != nil {
			if _, ok := errors.AsType[RequestError](err); !ok || !utf8.ValidString(err.Error()) {
				t.Errorf("error %q: want one of the request, in text", err)
			}
			return
		}
		certificate := certificates.Parse(t, signed)
		if certificate.IsCA || !certificate.BasicConstraintsValid || certificate.NotAfter.After(now.Add(time.Hour)) ||
			certificate.KeyUsage != x509.KeyUsageDigitalSignature ||
			!slices.Equal(certificate.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || len(certificate.UnknownExtKeyUsage) > 0 {
			t.Errorf("too much is granted: %+v", certificate)
		}
		if err := certificate.CheckSignatureFrom(ca.Certificate); err != nil {
			t.Error(err)
		}
		// What a signer has checked of the request holds of the certificate.
		if !slices.Equal(certificate.Subject.Organization, request.Subject.Organization) || certificate.Subject.CommonName != request.Subject.CommonName {
			t.Errorf("subject %s, want %s", certificate.Subject, request.Subject)
		}
		if !slices.Equal(certificate.DNSNames, request.DNSNames) || !slices.Equal(certificate.EmailAddresses, request.EmailAddresses) ||
			!slices.EqualFunc(certificate.IPAddresses, request.IPAddresses, net.IP.Equal) || len(certificate.URIs) != len(request.URIs) {
			t.Errorf("names %+v, want %+v", certificate, request)
		}
	})
}
