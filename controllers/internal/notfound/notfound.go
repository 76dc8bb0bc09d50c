// Package notfound tells the API server's answer that something is not there
// from a 404 of a proxy or load balancer before it, which knows no objects.
package notfound

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ByAPIServer tells whether err is the API server's answer that the object of a
// request, or its namespace, is not there.
func ByAPIServer(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
