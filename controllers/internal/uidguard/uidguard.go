// Package uidguard reads the answers to patches that name the UID of their
// object, so that they change no other object of its name.
package uidguard

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// uidField is what the API server says that a patch may not change when the
// object of its name is another one.
const uidField = "metadata.uid"

// Gone tells that a patch with metadata.uid has changed nothing because its
// object is not there any more: there is none of its name, or another one.
func Gone(err error) bool {
	return notfound.ByAPIServer(err) || apierrors.IsInvalid(err) && changesUID(err)
}

// Refused tells that a patch with metadata.uid, an apply among them, has changed
// nothing because its object is gone, or another one has its name. It is true
// also for a patch that lost against others at the same moment. So the object is
// to be looked at again once the cache knows more.
func Refused(err error) bool {
	return Gone(err) || apierrors.IsConflict(err)
}

func changesUID(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == uidField })
}
