// Package podcertificatecleaner deletes PodCertificateRequests that have reached
// an age at which every way to issue them is over, whatever has become of them.
// Kubelets make a new one for each renewal.
package podcertificatecleaner

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

var requestResource = certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests")

// Descriptor describes podcertificaterequest-cleaner-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.PodCertificateRequestCleanerControllerSection(),
		ServiceAccount: "podcertificaterequestcleaner",
		Requires:       []apischema.GroupVersionResource{requestResource},
		FeatureGates:   []string{"PodCertificateRequest"},
		LiveFields:     []string{"interval", "threshold"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{requestResource.Group}, Resources: []string{requestResource.Resource}, Verbs: []string{"delete"}},
		},
		New: controller.NewFor(New),
	}
}

// New makes the controller.
func New(env controller.Env, section *schema.PodCertificateRequestCleanerController) (*controller.Controller, error) {
	informer, err := env.Informers.MetadataInformer(requestResource)
	if err != nil {
		return nil, fmt.Errorf("watch pod certificate requests: %w", err)
	}
	var threshold atomic.Int64
	threshold.Store(int64(section.Threshold.Duration))
	requests := env.Metadata.Resource(requestResource)
	cleaner := sweep.New(env, sweep.Options[*metav1.PartialObjectMetadata]{
		Queue:    "podcertificaterequest_cleaner",
		Objects:  informer.Indexer(),
		Interval: section.Interval.Duration,
		Due: func(request *metav1.PartialObjectMetadata, now time.Time) string {
			if age := now.Sub(request.CreationTimestamp.Time); age < time.Duration(threshold.Load()) {
				return ""
			}
			return "it is old enough"
		},
		Delete: func(ctx context.Context, request *metav1.PartialObjectMetadata) error {
			return requests.Namespace(request.Namespace).Delete(ctx, request.Name, metav1.DeleteOptions{
				Preconditions: metav1.NewUIDPreconditions(string(request.UID)),
			})
		},
	})
	return &controller.Controller{ApplyLive: func(s schema.Section) {
		if section, ok := s.(*schema.PodCertificateRequestCleanerController); ok {
			threshold.Store(int64(section.Threshold.Duration))
			cleaner.Changed(section.Interval.Duration)
		}
	}}, nil
}
