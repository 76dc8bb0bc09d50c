// Package csrapproving approves the client certificates that kubelets ask for,
// if the requester has the right to. It leaves everything else to people, and
// never denies.
package csrapproving

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/csrpolicy"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	approvedReason = "AutoApproved"

	// What a failing request waits.
	retryAfterMin = 200 * time.Millisecond
	// retryAfterMax is also what one waits at most whose requester has no right yet.
	retryAfterMax = 1000 * time.Second
	// refusedMin holds also while this machine's clock is behind the API server's.
	refusedMin = 5 * time.Second
)

var requests = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// permission is what a requester may be given, as the right to create a
// subresource of certificatesigningrequests that does not exist otherwise.
type permission struct {
	subresource string
	message     string
	// applies tells whether the permission is about a kubelet's request.
	applies func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) bool
}

// permissions in the order in which they are tried: a node that asks for its
// own certificate, and anybody that asks for a node's.
func permissions() []permission {
	return []permission{
		{
			subresource: "selfnodeclient",
			message:     "Auto approving self kubelet client certificate after SubjectAccessReview.",
			applies: func(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) bool {
				return csr.Spec.Username == request.Subject.CommonName
			},
		},
		{
			subresource: "nodeclient",
			message:     "Auto approving kubelet client certificate after SubjectAccessReview.",
			applies:     func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) bool { return true },
		},
	}
}

// Descriptor describes certificatesigningrequest-approving-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.CertificateSigningRequestApprovingControllerSection(),
		ServiceAccount: "certificate-controller",
		Requires:       []apischema.GroupVersionResource{requests},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{certificatesv1.GroupName},
				Resources: []string{"certificatesigningrequests/approval"},
				Verbs:     []string{"update"},
			},
			{
				APIGroups:     []string{certificatesv1.GroupName},
				Resources:     []string{"signers"},
				ResourceNames: []string{certificatesv1.KubeAPIServerClientKubeletSignerName},
				Verbs:         []string{"approve"},
			},
			{
				APIGroups: []string{authorizationv1.GroupName},
				Resources: []string{"subjectaccessreviews"},
				Verbs:     []string{"create"},
			},
		},
		New: controller.NewFor(New),
	}
}

// approver reconciles requests, by name.
type approver struct {
	client   kubernetes.Interface
	logger   *slog.Logger
	clock    clock.PassiveClock
	requests certificateslisters.CertificateSigningRequestLister
	queue    *work.Queue[string]
}

// New makes the controller.
func New(env controller.Env, _ *schema.CertificateSigningRequestApprovingController) (*controller.Controller, error) {
	informer, err := env.Informers.Informer(requests)
	if err != nil {
		return nil, fmt.Errorf("watch certificate signing requests: %w", err)
	}
	c := &approver{
		client:   env.Client,
		logger:   env.Logger,
		clock:    env.Clock,
		requests: certificateslisters.NewCertificateSigningRequestLister(informer.Indexer()),
	}
	c.queue = work.NewQueue(env.Work, work.Options[string]{
		Name:      "csrapproving",
		Reconcile: c.reconcile,
		Limiter:   work.NewLimiter[string](retryAfterMin, retryAfterMax),
	})
	if err := informer.AddEventHandler(c.handler()); err != nil {
		return nil, fmt.Errorf("watch certificate signing requests: %w", err)
	}
	return &controller.Controller{}, nil
}

func (c *approver) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok && undecided(csr) {
				c.queue.AddEvent(csr.Name, isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok && undecided(csr) {
				c.queue.Add(csr.Name)
			}
		},
	}
}

// undecided requests for the client certificate of a kubelet are all that is looked at.
func undecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
		len(csr.Status.Certificate) == 0 &&
		!csrpolicy.HasCondition(csr, certificatesv1.CertificateApproved) &&
		!csrpolicy.HasCondition(csr, certificatesv1.CertificateDenied)
}

// reconcile approves a request whose requester may have the certificate, and
// comes back for one whose requester may be given the right.
func (c *approver) reconcile(ctx context.Context, name string) (work.Result, error) {
	csr, err := c.requests.Get(name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up certificate signing request %s: %w", name, err)
	}
	if !undecided(csr) {
		return work.Result{}, nil
	}
	request, err := csrpolicy.Parse(csr.Spec.Request)
	if err != nil {
		// It never changes: only its signer or a person can end it.
		c.logger.Warn("Certificate signing request cannot be read", "request", name, "err", err)
		return work.Result{}, nil
	}
	if err := csrpolicy.CheckKubeletClient(request, csr.Spec.Usages); err != nil {
		c.logger.Debug("Certificate signing request is not that of a kubelet", "request", name, "reason", err)
		return work.Result{}, nil
	}

	for _, p := range permissions() {
		if !p.applies(csr, request) {
			continue
		}
		allowed, err := c.allowed(ctx, csr, p.subresource)
		if err != nil {
			return work.Result{}, fmt.Errorf("review the access of the requester of %s: %w", name, err)
		}
		if allowed {
			return work.Result{}, c.approve(ctx, csr, p.message)
		}
	}
	// Nothing tells when the requester is given the right. Looking again when as
	// much time has passed as since the request was made bounds the reviews, and
	// is no other after a restart.
	c.logger.Debug("Requester may not have the certificate", "request", name, "user", csr.Spec.Username)
	age := c.clock.Since(csr.CreationTimestamp.Time)
	return work.Result{RequeueAfter: min(max(age, refusedMin), retryAfterMax)}, nil
}

// allowed asks the API server whether the requester has a permission.
func (c *approver) allowed(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, subresource string) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(csr.Spec.Extra))
	for key, values := range csr.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   csr.Spec.Username,
			UID:    csr.Spec.UID,
			Groups: csr.Spec.Groups,
			Extra:  extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group:       requests.Group,
				Resource:    requests.Resource,
				Verb:        "create",
				Version:     "*",
				Subresource: subresource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// approve writes with the version that was judged, so that a decision which
// somebody took meanwhile stays.
func (c *approver) approve(ctx context.Context, judged *certificatesv1.CertificateSigningRequest, message string) error {
	csr := judged.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type:    certificatesv1.CertificateApproved,
		Status:  corev1.ConditionTrue,
		Reason:  approvedReason,
		Message: message,
	})
	_, err := c.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	if notfound.ByAPIServer(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("approve certificate signing request %s: %w", csr.Name, err)
	}
	return nil
}
