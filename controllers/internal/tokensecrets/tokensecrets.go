// Package tokensecrets is about Secrets that hold the token of a service account.
package tokensecrets

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// Resource of Secrets of all types.
var Resource = corev1.SchemeGroupVersion.WithResource("secrets")

// Lease the informer of the token Secrets alone: the rest of a cluster's
// Secrets is many times as much, and nothing that a process should hold that
// does not need it.
func Lease(lease *informers.Lease) (*informers.Informer, error) {
	informer, err := lease.SelectedInformer(Resource, informers.Selection{
		FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken),
	})
	if err != nil {
		return nil, fmt.Errorf("watch token secrets: %w", err)
	}
	return informer, nil
}

// AccountName is the name of the service account that a token Secret is of.
func AccountName(secret *corev1.Secret) string {
	return secret.Annotations[corev1.ServiceAccountNameKey]
}

// AccountUID is its UID; empty when the Secret is of whatever account has the name.
func AccountUID(secret *corev1.Secret) types.UID {
	return types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
}
