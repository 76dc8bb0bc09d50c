// Package csrcleaner deletes CertificateSigningRequests that nobody waits for
// any more: some time after their decision or, without one, their creation, and
// as soon as their certificate has expired.
package csrcleaner

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/sweep"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var requestResource = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// Descriptor describes certificatesigningrequest-cleaner-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.CertificateSigningRequestCleanerControllerSection(),
		ServiceAccount: "certificate-controller",
		Requires:       []apischema.GroupVersionResource{requestResource},
		LiveFields:     []string{"interval", "issuedPeriod", "deniedPeriod", "failedPeriod", "pendingPeriod", "approvedPeriod"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{requestResource.Group}, Resources: []string{requestResource.Resource}, Verbs: []string{"delete"}},
		},
		New: controller.NewFor(New),
	}
}

// New makes the controller.
func New(env controller.Env, section *schema.CertificateSigningRequestCleanerController) (*controller.Controller, error) {
	informer, err := env.Informers.Informer(requestResource)
	if err != nil {
		return nil, fmt.Errorf("watch certificate signing requests: %w", err)
	}
	var present atomic.Pointer[periods]
	present.Store(periodsOf(section))
	requests := env.Client.CertificatesV1().CertificateSigningRequests()
	cleaner := sweep.New(env, sweep.Options[*certificatesv1.CertificateSigningRequest]{
		Queue:    "certificatesigningrequest_cleaner",
		Objects:  informer.Indexer(),
		Interval: section.Interval.Duration,
		Due: func(request *certificatesv1.CertificateSigningRequest, now time.Time) string {
			return due(request, *present.Load(), now)
		},
		// A request that was decided meanwhile is another one than was judged.
		Delete: func(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
			return requests.Delete(ctx, request.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &request.UID, ResourceVersion: &request.ResourceVersion},
			})
		},
	})
	return &controller.Controller{ApplyLive: func(s schema.Section) {
		if section, ok := s.(*schema.CertificateSigningRequestCleanerController); ok {
			present.Store(periodsOf(section))
			cleaner.Changed(section.Interval.Duration)
		}
	}}, nil
}
