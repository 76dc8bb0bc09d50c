package csrpolicy

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/test/certificates"
)

type usages = []certificatesv1.KeyUsage

const (
	sign   = certificatesv1.UsageDigitalSignature
	encode = certificatesv1.UsageKeyEncipherment
	client = certificatesv1.UsageClientAuth
	server = certificatesv1.UsageServerAuth
)

// node is what a kubelet asks for, changed.
func node(change func(*x509.CertificateRequest)) *x509.CertificateRequest {
	request := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	if change != nil {
		change(request)
	}
	return request
}

func serving(change func(*x509.CertificateRequest)) *x509.CertificateRequest {
	return node(func(r *x509.CertificateRequest) {
		r.DNSNames, r.IPAddresses = []string{"n1"}, []net.IP{{10, 0, 0, 1}}
		if change != nil {
			change(r)
		}
	})
}

func TestChecks(t *testing.T) {
	type check = func(*x509.CertificateRequest, usages) error
	tests := []struct {
		name    string
		check   check
		request *x509.CertificateRequest
		usages  usages
		want    string
	}{
		{"kubelet client", CheckKubeletClient, node(nil), usages{sign, encode, client}, ""},
		{"in another order", CheckKubeletClient, node(nil), usages{client, sign, encode}, ""},
		{"without key encipherment", CheckKubeletClient, node(nil), usages{client, sign}, ""},
		{"no usages", CheckKubeletClient, node(nil), nil, "usages did not match [client auth digital signature key encipherment]"},
		{"one usage more", CheckKubeletClient, node(nil), usages{client, sign, server},
			"usages did not match [client auth digital signature key encipherment]"},
		{"without signature", CheckKubeletClient, node(nil), usages{client, encode},
			"usages did not match [client auth digital signature key encipherment]"},
		{"no organization", CheckKubeletClient, node(func(r *x509.CertificateRequest) { r.Subject.Organization = nil }), usages{sign, client},
			"subject organization is not system:nodes"},
		{"another organization", CheckKubeletClient, node(func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{"system:masters"}
		}), usages{sign, client}, "subject organization is not system:nodes"},
		{"two organizations", CheckKubeletClient, node(func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{"system:nodes", "system:masters"}
		}), usages{sign, client}, "subject organization is not system:nodes"},
		{"another name", CheckKubeletClient, node(func(r *x509.CertificateRequest) { r.Subject.CommonName = "mike" }), usages{sign, client},
			"subject common name does not begin with system:node:"},
		{"DNS before everything else", CheckKubeletClient, node(func(r *x509.CertificateRequest) {
			r.DNSNames, r.EmailAddresses, r.Subject.CommonName = []string{"n1"}, []string{"a@b"}, "mike"
		}), usages{server}, "DNS subjectAltNames are not allowed"},
		{"email before IP", CheckKubeletClient, node(func(r *x509.CertificateRequest) {
			r.EmailAddresses, r.IPAddresses = []string{"a@b"}, []net.IP{{10, 0, 0, 1}}
		}), usages{sign, client}, "Email subjectAltNames are not allowed"},
		{"IP before URI", CheckKubeletClient, node(func(r *x509.CertificateRequest) {
			r.IPAddresses, r.URIs = []net.IP{{10, 0, 0, 1}}, []*url.URL{{Scheme: "x"}}
		}), usages{sign, client}, "IP subjectAltNames are not allowed"},
		{"URI before the name", CheckKubeletClient, node(func(r *x509.CertificateRequest) {
			r.URIs, r.Subject.CommonName = []*url.URL{{Scheme: "x"}}, "mike"
		}), usages{sign, client}, "URI subjectAltNames are not allowed"},

		{"kubelet serving", CheckKubeletServing, serving(nil), usages{sign, encode, server}, ""},
		{"serving without key encipherment", CheckKubeletServing, serving(nil), usages{sign, server}, ""},
		{"serving with an IP only", CheckKubeletServing, serving(func(r *x509.CertificateRequest) { r.DNSNames = nil }), usages{sign, server}, ""},
		{"serving without a name", CheckKubeletServing, node(nil), usages{sign, server}, "DNS or IP subjectAltName is required"},
		{"serving with an email", CheckKubeletServing, serving(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b"} }),
			usages{sign, server}, "Email subjectAltNames are not allowed"},
		{"serving with a URI", CheckKubeletServing, serving(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "x"}} }),
			usages{sign, server}, "URI subjectAltNames are not allowed"},
		{"serving as a client", CheckKubeletServing, serving(func(r *x509.CertificateRequest) { r.Subject.CommonName = "mike" }), usages{sign, client},
			"usages did not match [digital signature key encipherment server auth]"},
		{"serving of others", CheckKubeletServing, serving(func(r *x509.CertificateRequest) { r.Subject.CommonName = "mike" }), usages{sign, server},
			"subject common name does not begin with system:node:"},
		{"serving of no node", CheckKubeletServing, serving(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"x"} }),
			usages{sign, server}, "subject organization is not system:nodes"},

		{"client", CheckAPIServerClient, &x509.CertificateRequest{}, usages{client}, ""},
		{"client with all usages", CheckAPIServerClient, &x509.CertificateRequest{}, usages{sign, encode, client}, ""},
		{"client and server", CheckAPIServerClient, &x509.CertificateRequest{}, usages{client, server},
			"invalid usage for client certificate: server auth"},
		{"no client", CheckAPIServerClient, &x509.CertificateRequest{}, usages{sign}, "missing required usage for client certificate: client auth"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := test.check(test.request, test.usages); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	key := certificates.NewKey(t)
	good := certificates.Request(t, node(nil), key)
	ca := certificates.New(t, "ca", nil)
	for name, test := range map[string]struct {
		data []byte
		ok   bool
	}{
		"a request":            {good, true},
		"with text before":     {append([]byte("hello\n"), good...), true},
		"after another block":  {append([]byte(string(ca.CertPEM)), good...), false},
		"a certificate":        {ca.CertPEM, false},
		"nothing":              {nil, false},
		"text":                 {[]byte("hello"), false},
		"half":                 {good[:len(good)/2], false},
		"something in a block": {[]byte("-----BEGIN CERTIFICATE REQUEST-----\naGVsbG8=\n-----END CERTIFICATE REQUEST-----\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := Parse(test.data)
			if (err == nil) != test.ok || (err == nil) != (request != nil) {
				t.Errorf("request %v, error %v", request, err)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	with := func(kind certificatesv1.RequestConditionType, status corev1.ConditionStatus) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: status}},
		}}
	}
	if !HasCondition(with(certificatesv1.CertificateApproved, corev1.ConditionFalse), certificatesv1.CertificateApproved) ||
		HasCondition(with(certificatesv1.CertificateApproved, corev1.ConditionTrue), certificatesv1.CertificateDenied) {
		t.Error("a condition counts whatever its status is, and no other does")
	}
	for status, want := range map[corev1.ConditionStatus]bool{
		corev1.ConditionTrue: true, "": true, corev1.ConditionFalse: false, corev1.ConditionUnknown: false,
	} {
		if Failed(with(certificatesv1.CertificateFailed, status)) != want {
			t.Errorf("Failed with status %q is %t", status, !want)
		}
	}
	if Failed(with(certificatesv1.CertificateApproved, corev1.ConditionTrue)) {
		t.Error("an approved request has not failed")
	}
}

func FuzzParse(f *testing.F) {
	key := certificates.NewKey(f)
	names := make([]string, 2000)
	for i := range names {
		names[i] = strings.Repeat("a", 60) + ".example.com"
	}
	f.Add(certificates.Request(f, node(nil), key))
	f.Add(certificates.Request(f, node(func(r *x509.CertificateRequest) { r.DNSNames = names }), key))
	f.Add(certificates.Request(f, serving(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "x", Host: "y"}} }), key))
	f.Fuzz(func(t *testing.T, data []byte) {
		request, err := Parse(data)
		if err != nil {
			return
		}
		all := usages{sign, encode, client, server}
		if CheckKubeletClient(request, all) == nil || CheckKubeletServing(request, all) == nil || CheckAPIServerClient(request, all) == nil {
			t.Error("a certificate for both clients and servers is allowed")
		}
		if err := CheckKubeletClient(request, usages{sign, client}); err == nil &&
			(len(request.Subject.Organization) != 1 || request.Subject.Organization[0] != "system:nodes" ||
				len(request.DNSNames)+len(request.IPAddresses)+len(request.EmailAddresses)+len(request.URIs) > 0) {
			t.Errorf("accepted: %+v", request.Subject)
		}
	})
}
