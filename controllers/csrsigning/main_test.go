package csrsigning

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/csrpolicy"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const within = 60 * time.Second

const (
	serving   = certificatesv1.KubeletServingSignerName
	nodes     = certificatesv1.KubeAPIServerClientKubeletSignerName
	apiClient = certificatesv1.KubeAPIServerClientSignerName
)

// world is an engine that sees the requests of one test only.
type world struct {
	*harness.Engine
	t     *testing.T
	label string
	// ca is what mount holds.
	ca    *certificates.Authority
	mount *certificates.Mount
	// key of all requests.
	key *ecdsa.PrivateKey
}

func newWorld(t *testing.T) *world { return newWorldWith(t, certificates.New(t, "ca", nil)) }

func newWorldWith(t *testing.T, ca *certificates.Authority) *world {
	t.Helper()
	label := rand.String(10)
	return &world{
		Engine: harness.New(t, controlplane.Shared(t), harness.Options{
			Scope: apiproxy.Scope{Selected: requests.GroupResource(), Selector: "test=" + label},
		}),
		t:     t,
		label: label,
		ca:    ca,
		mount: certificates.NewMount(t, ca.Pair()),
		key:   certificates.NewKey(t),
	}
}

// section with one CA for all signers.
func (w *world) section() *schema.CertificateSigningRequestSigningController {
	return &schema.CertificateSigningRequestSigningController{
		ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 5},
		CertFile:           w.mount.Path("tls.crt"),
		KeyFile:            w.mount.Path("tls.key"),
		Duration:           metav1.Duration{Duration: 8760 * time.Hour},
	}
}

func (w *world) start() *harness.Instance {
	w.t.Helper()
	return w.Start(Descriptor(), w.section())
}

// replace the CA in the mount.
func (w *world) replace(ca *certificates.Authority) {
	w.t.Helper()
	w.ca = ca
	w.mount.Write(w.t, ca.Pair())
}

// template of a good request for a signer.
func template(signerName string) *x509.CertificateRequest {
	request := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	switch signerName {
	case serving:
		request.DNSNames, request.IPAddresses = []string{"n1"}, []net.IP{{10, 0, 0, 1}}
	case nodes:
	default:
		request.Subject = pkix.Name{CommonName: "somebody", Organization: []string{"people"}}
	}
	return request
}

func usagesFor(signerName string) []certificatesv1.KeyUsage {
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	if signerName == serving {
		return append(usages, certificatesv1.UsageServerAuth)
	}
	return append(usages, certificatesv1.UsageClientAuth)
}

// change of a request before it is created.
type change func(request *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec)

// create a request and return its name.
func (w *world) create(signerName string, changes ...change) string {
	w.t.Helper()
	return w.created(signerName, changes...).Name
}

func (w *world) created(signerName string, changes ...change) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	request := template(signerName)
	spec := certificatesv1.CertificateSigningRequestSpec{SignerName: signerName, Usages: usagesFor(signerName)}
	for _, change := range changes {
		change(request, &spec)
	}
	spec.Request = certificates.Request(w.t, request, w.key)
	csr, err := w.Admin.CertificatesV1().CertificateSigningRequests().Create(w.t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-", Labels: map[string]string{"test": w.label}},
		Spec:       spec,
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return csr
}

func (w *world) get(name string) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	csr, err := w.Admin.CertificatesV1().CertificateSigningRequests().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return csr
}

// decide adds a condition that an administrator may add.
func (w *world) decide(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	w.t.Helper()
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "Test", Message: "decided by the test",
	})
	_, err := w.Admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(w.t.Context(), csr.Name, csr, metav1.UpdateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// approved creates an approved request.
func (w *world) approved(signerName string, changes ...change) string {
	w.t.Helper()
	csr := w.created(signerName, changes...)
	w.decide(csr, certificatesv1.CertificateApproved)
	return csr.Name
}

// signed waits for a certificate, which w.ca must have signed.
func (w *world) signed(name string) *x509.Certificate {
	w.t.Helper()
	var data []byte
	harness.Eventually(w.t, within, "certificate of "+name, func(ctx context.Context) error {
		csr, err := w.Admin.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if data = csr.Status.Certificate; len(data) == 0 {
			return fmt.Errorf("there is none; conditions: %+v", csr.Status.Conditions)
		}
		return nil
	})
	certificate := certificates.Parse(w.t, data)
	if err := certificate.CheckSignatureFrom(w.ca.Certificate); err != nil {
		w.t.Errorf("certificate of %s: %v", name, err)
	}
	return certificate
}

// failed waits for condition Failed and returns its message.
func (w *world) failed(name string) string {
	w.t.Helper()
	message := ""
	harness.Eventually(w.t, within, "failure of "+name, func(ctx context.Context) error {
		csr, err := w.Admin.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(csr.Status.Certificate) > 0 {
			return errors.New("it was signed")
		}
		for _, condition := range csr.Status.Conditions {
			if condition.Type == certificatesv1.CertificateFailed {
				if condition.Reason != failedReason || condition.Status != corev1.ConditionTrue || condition.LastUpdateTime.IsZero() {
					w.t.Errorf("condition: %+v", condition)
				}
				message = condition.Message
				return nil
			}
		}
		return errors.New("it has not failed")
	})
	return message
}

// untouched fails the test if the controller has written to a request.
func (w *world) untouched(name string) {
	w.t.Helper()
	if writes := w.writes(name); len(writes) > 0 {
		w.t.Errorf("writes to %s: %+v", name, writes)
	}
	if csr := w.get(name); len(csr.Status.Certificate) > 0 {
		w.t.Errorf("%s was signed", name)
	}
}

// settled returns when all of the controller's signers have handled what came before the call.
func (w *world) settled() {
	w.t.Helper()
	for _, signerName := range []string{serving, nodes, apiClient} {
		w.signed(w.approved(signerName))
	}
}

func (w *world) writes(name string) (writes []apiproxy.Request) {
	for _, r := range w.Writes(requests.GroupResource()) {
		if r.Name == name {
			writes = append(writes, r)
		}
	}
	return writes
}

// pendingIn tells whether a request still waits for its signer.
func pendingIn(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 && !csrpolicy.Failed(csr)
}
