package csrsigning

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/csrpolicy"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/issuing"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

const (
	// legacyUnknownSigner exists in requests that were stored before v1 of the API only.
	legacyUnknownSigner = "kubernetes.io/legacy-unknown"

	// failedReason is the reason of condition Failed.
	failedReason = "SignerValidationFailure"

	retryAfterMin = 200 * time.Millisecond
	retryAfterMax = 1000 * time.Second
)

// policy is what a signer accepts.
type policy struct {
	signerName string
	queue      string
	check      func(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error
}

func kubeletServing() policy {
	return policy{certificatesv1.KubeletServingSignerName, "csrsigning-kubelet-serving", csrpolicy.CheckKubeletServing}
}

func kubeletClient() policy {
	return policy{certificatesv1.KubeAPIServerClientKubeletSignerName, "csrsigning-kubelet-client", csrpolicy.CheckKubeletClient}
}

func apiServerClient() policy {
	return policy{certificatesv1.KubeAPIServerClientSignerName, "csrsigning-kube-apiserver-client", csrpolicy.CheckAPIServerClient}
}

func legacyUnknown() policy {
	return policy{legacyUnknownSigner, "csrsigning-legacy-unknown",
		func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error { return nil }}
}

// signer reconciles the requests of one signer, by name.
type signer struct {
	*signing
	policy policy
	ca     *keymaterial.Source[*keymaterial.SigningPair]
	queue  *work.Queue[string]
}

func newSigner(env controller.Env, c *signing, p policy) *signer {
	s := &signer{signing: c, policy: p}
	s.queue = work.NewQueue(env.Work, work.Options[string]{
		Name:      p.queue,
		Reconcile: s.reconcile,
		Limiter:   work.NewLimiter[string](retryAfterMin, retryAfterMax),
	})
	return s
}

// signPending is called when there is another CA, which may sign what the one before could not.
func (s *signer) signPending() {
	all, err := s.requests.List(labels.Everything())
	if err != nil {
		s.logger.Error("Pending requests are not signed with the new CA before their next retry", "err", err)
		return
	}
	for _, csr := range all {
		if csr.Spec.SignerName == s.policy.signerName && pending(csr) {
			s.queue.Add(csr.Name)
		}
	}
}

// pending requests are approved and have neither a certificate nor failed.
func pending(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 &&
		csrpolicy.HasCondition(csr, certificatesv1.CertificateApproved) &&
		!csrpolicy.HasCondition(csr, certificatesv1.CertificateDenied) &&
		!csrpolicy.Failed(csr)
}

// reconcile signs a request, or says in its condition Failed why it never will be.
func (s *signer) reconcile(ctx context.Context, name string) (work.Result, error) {
	cached, err := s.requests.Get(name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up certificate signing request %s: %w", name, err)
	}
	if cached.Spec.SignerName != s.policy.signerName || !pending(cached) {
		return work.Result{}, nil
	}

	now := s.clock.Now()
	csr := cached.DeepCopy()
	csr.Status.Certificate, err = s.certificate(cached, now)
	var refused issuing.RequestError
	switch {
	case errors.As(err, &refused):
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type:           certificatesv1.CertificateFailed,
			Status:         corev1.ConditionTrue,
			Reason:         failedReason,
			Message:        refused.Error(),
			LastUpdateTime: metav1.NewTime(now),
		})
	case err != nil:
		return work.Result{}, fmt.Errorf("sign certificate signing request %s: %w", name, err)
	}
	return work.Result{}, s.updateStatus(ctx, csr)
}

// certificate of a request, in PEM. The error is an issuing.RequestError when there will never be one.
func (s *signer) certificate(csr *certificatesv1.CertificateSigningRequest, now time.Time) ([]byte, error) {
	request, usages, err := s.examine(csr)
	if err != nil {
		return nil, issuing.RequestError{Err: err}
	}
	ca := s.ca.Current()
	return issuing.Sign(ca.Certificate, ca.Key, request, usages, issuing.Lifetime(csr.Spec.ExpirationSeconds, s.longest()), now)
}

// examine says what can never be signed.
func (s *signer) examine(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, issuing.Usages, error) {
	request, err := csrpolicy.Parse(csr.Spec.Request)
	if err != nil {
		return nil, issuing.Usages{}, err
	}
	if err := s.policy.check(request, csr.Spec.Usages); err != nil {
		return nil, issuing.Usages{}, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, issuing.Usages{}, fmt.Errorf("the request is not signed by the key that it is for: %w", err)
	}
	usages, err := issuing.UsagesOf(csr.Spec.Usages)
	return request, usages, err
}

func (s *signer) updateStatus(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	_, err := s.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, csr, metav1.UpdateOptions{})
	if notfound.ByAPIServer(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("update status of certificate signing request %s: %w", csr.Name, err)
	}
	return nil
}
