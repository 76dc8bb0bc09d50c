package csrsigning

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
)

// condition of a stored request.
func condition(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
	return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue}
}

// TestRequestsThatTheAPIServerTakesNoMore are those that were stored long ago:
// the API server refuses to create them now.
func TestRequestsThatTheAPIServerTakesNoMore(t *testing.T) {
	t.Parallel()
	key := certificates.NewKey(t)
	good := certificates.Request(t, template(apiClient), key)
	ca := certificates.New(t, "ca", nil)
	mount := certificates.NewMount(t, ca.Pair())
	approved := []certificatesv1.CertificateSigningRequestCondition{condition(certificatesv1.CertificateApproved)}
	for name, test := range map[string]struct {
		policy     policy
		request    []byte
		usages     []certificatesv1.KeyUsage
		conditions []certificatesv1.CertificateSigningRequestCondition
		// wantFailed is part of the message; a certificate is wanted when it is empty.
		wantFailed string
		untouched  bool
	}{
		"legacy unknown": {policy: legacyUnknown(), request: good, usages: []certificatesv1.KeyUsage{"server auth", "cert sign"}, conditions: approved},
		"an unknown usage": {policy: legacyUnknown(), request: good, usages: []certificatesv1.KeyUsage{"x"}, conditions: approved,
			wantFailed: "unknown usage"},
		"no PEM": {policy: apiServerClient(), request: []byte("hello"), usages: usagesFor(apiClient), conditions: approved,
			wantFailed: "PEM block of type CERTIFICATE REQUEST"},
		"a broken request": {policy: apiServerClient(), usages: usagesFor(apiClient), conditions: approved,
			request: []byte("-----BEGIN CERTIFICATE REQUEST-----\naGVsbG8=\n-----END CERTIFICATE REQUEST-----\n"), wantFailed: "PKCS #10"},
		"a signature of somebody else": {policy: apiServerClient(), usages: usagesFor(apiClient), conditions: approved,
			request: tampered(t, good), wantFailed: "not signed by the key"},
		"approved and denied": {policy: apiServerClient(), request: good, usages: usagesFor(apiClient), untouched: true,
			conditions: append(approved[:1:1], condition(certificatesv1.CertificateDenied))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "csr"},
				Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: test.policy.signerName, Request: test.request, Usages: test.usages},
				Status:     certificatesv1.CertificateSigningRequestStatus{Conditions: test.conditions},
			}
			client := fake.NewClientset(csr)
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if err := store.Add(csr); err != nil {
				t.Fatal(err)
			}
			logger := slog.New(slog.NewTextHandler(t.Output(), nil))
			c := &signing{
				client: client, logger: logger, clock: clock.RealClock{},
				requests: certificateslisters.NewCertificateSigningRequestLister(store),
			}
			c.duration.Store(int64(time.Hour))
			pair, err := keymaterial.NewSigningPair(controller.Env{
				Name: "test", Logger: logger, Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(),
			}, "ca", mount.Path("tls.crt"), mount.Path("tls.key"), nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &signer{signing: c, policy: test.policy, ca: pair}
			if _, err := s.reconcile(t.Context(), "csr"); err != nil {
				t.Fatal(err)
			}
			after, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "csr", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.untouched:
				if len(client.Actions()) != 1 {
					t.Errorf("requests: %v", client.Actions())
				}
			case test.wantFailed != "":
				last := after.Status.Conditions[len(after.Status.Conditions)-1]
				if last.Type != certificatesv1.CertificateFailed || !strings.Contains(last.Message, test.wantFailed) {
					t.Errorf("last condition %+v, want Failed because of %q", last, test.wantFailed)
				}
			default:
				certificate := certificates.Parse(t, after.Status.Certificate)
				if err := certificate.CheckSignatureFrom(ca.Certificate); err != nil || certificate.IsCA {
					t.Errorf("CA %t, error %v", certificate.IsCA, err)
				}
			}
		})
	}
}

// tampered has another name in it than the one that was signed.
func tampered(t *testing.T, request []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(request)
	if block == nil || !bytes.Contains(block.Bytes, []byte("somebody")) {
		t.Fatal("the request names nobody")
	}
	block.Bytes = bytes.Replace(block.Bytes, []byte("somebody"), []byte("somebodY"), 1)
	return pem.EncodeToMemory(block)
}
