package csrsigning

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/csrcleaner"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_AKubeletGetsItsClientCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	before := time.Now()
	certificate := w.signed(w.approved(nodes))
	if err := w.ca.Verify(certificate, time.Now(), x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if got := certificate.Subject.String(); got != "CN=system:node:n1,O=system:nodes" {
		t.Errorf("subject %s", got)
	}
	if !slices.Equal(certificate.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) ||
		certificate.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment {
		t.Errorf("usages %v %b", certificate.ExtKeyUsage, certificate.KeyUsage)
	}
	if certificate.IsCA || !certificate.BasicConstraintsValid {
		t.Error("it should say that it is no CA")
	}
	begin := certificate.NotBefore.Add(5 * time.Minute)
	if begin.Before(before.Add(-time.Second)) || begin.After(time.Now()) {
		t.Errorf("not before %s", certificate.NotBefore)
	}
}

func TestAcceptance02_WithoutApprovalNothingIsSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	undecided, denied := w.created(nodes), w.created(nodes)
	w.decide(denied, certificatesv1.CertificateDenied)
	w.settled()
	w.untouched(undecided.Name)
	w.untouched(denied.Name)
	w.decide(undecided, certificatesv1.CertificateApproved)
	w.signed(undecided.Name)
}

func TestAcceptance03_AKubeletGetsItsServingCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	certificate := w.signed(w.approved(serving))
	if err := w.ca.Verify(certificate, time.Now(), x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	if !slices.Equal(certificate.DNSNames, []string{"n1"}) || len(certificate.IPAddresses) != 1 || certificate.IPAddresses[0].String() != "10.0.0.1" {
		t.Errorf("names %v %v", certificate.DNSNames, certificate.IPAddresses)
	}
	nameless := w.approved(serving, func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
		r.DNSNames, r.IPAddresses = nil, nil
	})
	if got := w.failed(nameless); got != "DNS or IP subjectAltName is required" {
		t.Errorf("message %q", got)
	}
	w.settled()
	if writes := w.writes(nameless); len(writes) != 1 {
		t.Errorf("writes: %+v", writes)
	}
}

func withUsages(usages ...certificatesv1.KeyUsage) change {
	return func(_ *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec) {
		spec.Usages = usages
	}
}

func TestAcceptance04_UsagesOfClientsAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	certificate := w.signed(w.approved(apiClient, withUsages("client auth", "digital signature")))
	if err := w.ca.Verify(certificate, time.Now(), x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if got := w.failed(w.approved(apiClient, withUsages("client auth", "server auth"))); got != "invalid usage for client certificate: server auth" {
		t.Errorf("message %q", got)
	}
	if got := w.failed(w.approved(apiClient, withUsages("digital signature"))); got != "missing required usage for client certificate: client auth" {
		t.Errorf("message %q", got)
	}
}

func TestAcceptance05_AKubeletClientHasNoURI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	name := w.approved(nodes, func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
		r.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}}
	})
	if got := w.failed(name); got != "URI subjectAltNames are not allowed" {
		t.Errorf("message %q", got)
	}
}

func expiring(seconds int32) change {
	return func(_ *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec) {
		spec.ExpirationSeconds = ptr.To(seconds)
	}
}

func (w *world) period(name string) time.Duration {
	w.t.Helper()
	certificate := w.signed(name)
	return certificate.NotAfter.Sub(certificate.NotBefore)
}

func TestAcceptance06_TheDurationIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	section := w.section()
	section.Duration.Duration = 24 * time.Hour
	controller := w.Start(Descriptor(), section)
	if got := w.period(w.approved(nodes)); got != 24*time.Hour {
		t.Errorf("%s without a wish", got)
	}
	for seconds, want := range map[int32]time.Duration{
		86400:  24 * time.Hour,
		172800: 24 * time.Hour,
		72000:  20 * time.Hour,
		7200:   2*time.Hour + 5*time.Minute,
		600:    15 * time.Minute,
	} {
		if got := w.period(w.approved(nodes, expiring(seconds))); got != want {
			t.Errorf("%s for %d s, want %s", got, seconds, want)
		}
	}

	// Another duration needs no restart.
	longer := *section
	longer.Duration.Duration = 100 * time.Hour
	controller.ApplyLive(&longer)
	if got := w.period(w.approved(nodes)); got != 100*time.Hour {
		t.Errorf("%s after the edit", got)
	}
}

func TestAcceptance07_NoCertificateOutlivesItsCA(t *testing.T) {
	t.Parallel()
	short := certificates.New(t, "short", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) })
	w := newWorldWith(t, short)
	w.start()
	if got := w.signed(w.approved(nodes, expiring(86400))); !got.NotAfter.Equal(short.Certificate.NotAfter) {
		t.Errorf("ends at %s, the CA at %s", got.NotAfter, short.Certificate.NotAfter)
	}
}

func TestAcceptance07_AnExpiredCASignsNothingUntilItIsReplaced(t *testing.T) {
	t.Parallel()
	expired := certificates.New(t, "expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	w := newWorldWith(t, expired)
	controller := w.start()
	name := w.approved(nodes)
	harness.Eventually(t, within, "error of the signer", func(context.Context) error {
		if got := controller.Work().LastError; !strings.Contains(got, "refusing to sign a certificate that expired in the past: NotAfter=") {
			return fmt.Errorf("last error: %q", got)
		}
		return nil
	})
	w.untouched(name)
	w.replace(certificates.New(t, "good", nil))
	w.signed(name)
}

// rejected waits until /debug/controllers/NAME tells why a pair is not used.
func (w *world) rejected(controller *harness.Instance, why string) {
	w.t.Helper()
	harness.Eventually(w.t, within, "rejection", func(context.Context) error {
		if summary := controller.Summary(); !strings.Contains(summary, why) {
			return fmt.Errorf("summary: %s", summary)
		}
		return nil
	})
}

func TestAcceptance08_AReplacedCASignsTheNextRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	first := w.ca
	w.signed(w.approved(nodes))
	w.replace(certificates.New(t, "second", nil))
	harness.Eventually(t, within, "use of the second CA", func(context.Context) error {
		certificate := w.get(w.signedByAnybody()).Status.Certificate
		return certificates.Parse(t, certificate).CheckSignatureFrom(w.ca.Certificate)
	})
	w.signed(w.approved(serving))

	// One that does not match is not used.
	w.mount.Write(t, map[string][]byte{"tls.crt": first.CertPEM, "tls.key": w.ca.KeyPEM})
	w.rejected(controller, "does not match")
	w.signed(w.approved(nodes))
}

// signedByAnybody makes a signed request, whatever CA has signed it.
func (w *world) signedByAnybody() string {
	w.t.Helper()
	name := w.approved(nodes)
	harness.Eventually(w.t, within, "certificate", func(context.Context) error {
		if pendingIn(w.get(name)) {
			return errors.New("there is none")
		}
		return nil
	})
	return name
}

func TestAcceptance09_ASignerWithoutACADoesNotRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	section := w.section()
	section.KubeletServing = schema.Signer{CertFile: section.CertFile, KeyFile: section.KeyFile}
	section.CertFile, section.KeyFile = "", ""
	w.Start(Descriptor(), section)
	client := w.approved(nodes)
	w.signed(w.approved(serving))
	w.signed(w.approved(serving))
	w.untouched(client)
}

func TestAcceptance09_EachSignerHasItsOwnCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := func(ca *certificates.Authority) schema.Signer {
		mount := certificates.NewMount(t, ca.Pair())
		return schema.Signer{CertFile: mount.Path("tls.crt"), KeyFile: mount.Path("tls.key")}
	}
	section := w.section()
	section.CertFile, section.KeyFile = "", ""
	cas := map[string]*certificates.Authority{}
	for signerName, signer := range map[string]*schema.Signer{
		serving: &section.KubeletServing, nodes: &section.KubeletClient, apiClient: &section.KubeAPIServerClient,
	} {
		cas[signerName] = certificates.New(t, signerName, nil)
		*signer = files(cas[signerName])
	}
	w.Start(Descriptor(), section)
	for signerName, ca := range cas {
		w.ca = ca
		w.signed(w.approved(signerName))
	}
}

func TestAcceptance10_ConfigurationsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	descriptor := Descriptor()
	section := descriptor.Section.New()
	if reason := descriptor.Unavailable(section, nil); !strings.Contains(reason, "certFile") {
		t.Errorf("reason %q without a CA", reason)
	}
	ca := certificates.New(t, "ca", nil)
	mount := certificates.NewMount(t, ca.Pair())
	signer := schema.Signer{CertFile: mount.Path("tls.crt"), KeyFile: mount.Path("tls.key")}
	with := func(change func(*schema.CertificateSigningRequestSigningController)) *schema.CertificateSigningRequestSigningController {
		s, ok := descriptor.Section.New().(*schema.CertificateSigningRequestSigningController)
		if !ok {
			t.Fatalf("section is a %T", descriptor.Section.New())
		}
		change(s)
		return s
	}
	complaints := func(s *schema.CertificateSigningRequestSigningController) (all []string) {
		s.Validate(nil, func(message string, _ ...string) { all = append(all, message) })
		return all
	}
	if reason := descriptor.Unavailable(with(func(s *schema.CertificateSigningRequestSigningController) { s.KubeletClient = signer }), nil); reason != "" {
		t.Errorf("unavailable with one CA: %s", reason)
	}
	for name, s := range map[string]*schema.CertificateSigningRequestSigningController{
		"a CA for all and one for a signer": with(func(s *schema.CertificateSigningRequestSigningController) {
			s.CertFile, s.KeyFile, s.KubeletServing = signer.CertFile, signer.KeyFile, signer
		}),
		"a certificate without a key": with(func(s *schema.CertificateSigningRequestSigningController) { s.CertFile = signer.CertFile }),
		"a key without a certificate": with(func(s *schema.CertificateSigningRequestSigningController) {
			s.LegacyUnknown.KeyFile = signer.KeyFile
		}),
	} {
		if len(complaints(s)) == 0 {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestAcceptance10_TwoCertificatesAreNoCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pair := w.ca.Pair()
	pair["tls.crt"] = slices.Concat(pair["tls.crt"], pair["tls.crt"])
	w.mount.Write(t, pair)
	descriptor := Descriptor()
	construct := descriptor.New
	var refusal error
	descriptor.New = func(env controller.Env, section schema.Section) (*controller.Controller, error) {
		_, refusal = construct(env, section)
		return &controller.Controller{}, nil
	}
	w.Start(descriptor, w.section())
	if refusal == nil || !strings.Contains(refusal.Error(), "2 certificates") || !strings.Contains(refusal.Error(), w.mount.Path("tls.crt")) {
		t.Errorf("error %v, want one of two certificates that names the file", refusal)
	}
}

func TestAcceptance10_WithoutACAOthersRun(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	other := csrcleaner.Descriptor()
	m := harness.StartManager(t, cp, harness.ManagerOptions{}, Descriptor(), other)
	m.AwaitState(Descriptor().Name(), "Unavailable", "certFile")
	m.AwaitState(other.Name(), "Running", "")
}

func TestAcceptance11_RequestsForOtherSignersAreUntouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	name := w.approved("example.com/x")
	w.settled()
	w.untouched(name)
}

func TestAcceptance12_RequestedExtensionsAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	certificate := w.signed(w.approved(apiClient, func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
		r.ExtraExtensions = []pkix.Extension{certificates.ToBeCA(t)}
	}))
	if certificate.IsCA || certificate.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("the certificate is a CA")
	}
}

// approveMany makes approved requests, several at a time.
func (w *world) approveMany(count int, signerName func(i int) string) []string {
	w.t.Helper()
	names := make([]string, count)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range count {
		group.Go(func() error {
			names[i] = w.approved(signerName(i))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
	return names
}

// signedOnce waits until all requests are signed, and fails the test if one was written to twice.
func (w *world) signedOnce(names []string) {
	w.t.Helper()
	for _, name := range names {
		w.signed(name)
		if writes := w.writes(name); len(writes) != 1 || writes[0].Code != http.StatusOK || writes[0].Subresource != "status" {
			w.t.Errorf("writes to %s: %+v", name, writes)
		}
	}
}

func TestAcceptance13_WhatWasApprovedWhileStoppedIsSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	controller.Stop()
	names := w.approveMany(200, func(int) string { return nodes })
	controller.Start()
	w.signedOnce(names)
	if got := controller.Work().LastError; got != "" {
		t.Errorf("last error: %s", got)
	}
}

func TestAcceptance13_ResizingWhileSigning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	controller.Stop()
	names := w.approveMany(60, func(int) string { return nodes })
	// Nobody is quicker than the changes.
	resized := make(chan struct{})
	release := w.Proxy.Before(func(r apiproxy.Request) {
		if r.Subresource == "status" {
			<-resized
		}
	})
	defer release()
	controller.Start()
	controller.Resize(1)
	close(resized)
	w.certificates(20) // more than the 5 that were under way
	controller.Resize(10)
	w.signedOnce(names)
}

// certificates waits until as many requests have one.
func (w *world) certificates(atLeast int) {
	w.t.Helper()
	harness.Eventually(w.t, within, fmt.Sprint(atLeast, " certificates"), func(ctx context.Context) error {
		list, err := w.Admin.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: "test=" + w.label})
		if err != nil {
			return err
		}
		signed := 0
		for _, csr := range list.Items {
			if len(csr.Status.Certificate) > 0 {
				signed++
			}
		}
		if signed < atLeast {
			return fmt.Errorf("%d", signed)
		}
		return nil
	})
}

func TestAcceptance14_WhatHasFailedStaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	controller.Stop()
	name := w.approved(nodes)
	csr := w.get(name)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "Test",
	})
	if _, err := w.Admin.CertificatesV1().CertificateSigningRequests().UpdateStatus(t.Context(), csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controller.Start()
	w.settled()
	// A cache that did not know it yet can have led to an attempt, which must be refused.
	for _, r := range w.writes(name) {
		if r.Code != http.StatusConflict {
			t.Errorf("write: %+v", r)
		}
	}
	if after := w.get(name); len(after.Status.Certificate) > 0 || len(after.Status.Conditions) != 2 {
		t.Errorf("status: %+v", after.Status)
	}
}

func TestAStandbyTakesOverWithTheNewestCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Lose()
	controller := w.start()
	name := w.approved(nodes)
	w.replace(certificates.New(t, "second", nil))
	w.Lead()
	controller.WaitReady()
	w.signed(name)
}

// A 404 of a proxy does not mean that the request has gone.
func TestARequestThatAProxyDoesNotFindIsSignedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	stop := w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Verb == "update" && r.Resource == requests.GroupResource()
	}, http.StatusNotFound, 0)
	name := w.approved(nodes)
	harness.Eventually(t, within, "attempt", func(context.Context) error {
		if len(w.writes(name)) == 0 {
			return errors.New("there was none")
		}
		return nil
	})
	stop()
	w.signed(name)
}
