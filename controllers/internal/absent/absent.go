// Package absent tells absence from ignorance.
package absent

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object tells whether err is an API server's answer that it has no such
// object. A 404 without a status comes from a proxy, or from a server that does
// not serve the path, and says nothing about the object.
func Object(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
