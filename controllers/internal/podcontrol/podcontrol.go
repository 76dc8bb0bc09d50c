// Package podcontrol creates and deletes the pods of an owner, and tells of it
// in events on the owner.
package podcontrol

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/client"
)

// Reasons of the events on a pod's owner.
const (
	SuccessfulCreate = "SuccessfulCreate"
	FailedCreate     = "FailedCreate"
	SuccessfulDelete = "SuccessfulDelete"
	FailedDelete     = "FailedDelete"
)

// Control makes the requests with Client and records the events with Events.
type Control struct {
	Client kubernetes.Interface
	Events record.EventRecorder
}

// FromTemplate returns a new pod of owner: labels, annotations, finalizers and
// spec are the template's, controller is its only owner reference, and the API
// server completes its name from the owner's.
func FromTemplate(template *v1.PodTemplateSpec, owner metav1.Object, controller *metav1.OwnerReference) (*v1.Pod, error) {
	if len(template.Labels) == 0 {
		return nil, errors.New("unable to create pods, no labels")
	}
	if err := validate(controller); err != nil {
		return nil, fmt.Errorf("unable to create pods of %s: %w", owner.GetName(), err)
	}
	// A deep copy of what is taken over only: the template may be a cache's.
	from := template.DeepCopy()
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    namePrefix(owner.GetName()),
			Labels:          from.Labels,
			Annotations:     from.Annotations,
			Finalizers:      from.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*controller},
		},
		Spec: from.Spec,
	}, nil
}

func validate(controller *metav1.OwnerReference) error {
	switch {
	case controller == nil:
		return errors.New("no controller reference")
	case controller.APIVersion == "":
		return errors.New("controller reference without apiVersion")
	case controller.Kind == "":
		return errors.New("controller reference without kind")
	case controller.Controller == nil || !*controller.Controller:
		return errors.New("controller reference without controller: true")
	case controller.BlockOwnerDeletion == nil || !*controller.BlockOwnerDeletion:
		return errors.New("controller reference without blockOwnerDeletion: true")
	}
	return nil
}

// namePrefix ends in a dash where a pod's name may have one after owner's.
func namePrefix(owner string) string {
	prefix := owner + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) > 0 {
		return owner
	}
	return prefix
}

// Create creates pod, and records SuccessfulCreate or FailedCreate on owner.
// There is no event when the namespace is being deleted, see
// NamespaceTerminating, nor when this process has given up the request itself.
func (c Control) Create(ctx context.Context, owner runtime.Object, pod *v1.Pod) (*v1.Pod, error) {
	created, err := c.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		if !NamespaceTerminating(err) && !GivenUp(ctx, err) {
			c.Events.Eventf(owner, v1.EventTypeWarning, FailedCreate, "Error creating: %v", err)
		}
		return nil, err
	}
	c.Events.Eventf(owner, v1.EventTypeNormal, SuccessfulCreate, "Created pod: %v", created.Name)
	return created, nil
}

// Delete deletes pod, and records SuccessfulDelete or FailedDelete on owner.
// It returns nil without an event when that very pod is gone already, and
// records nothing when this process has given up the request itself.
func (c Control) Delete(ctx context.Context, owner runtime.Object, pod *v1.Pod) error {
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	switch {
	case err == nil:
		c.Events.Eventf(owner, v1.EventTypeNormal, SuccessfulDelete, "Deleted pod: %v", pod.Name)
		return nil
	case notfound.ByAPIServer(err), apierrors.IsConflict(err):
		return nil // a conflict means that another pod has the name now
	}
	if !GivenUp(ctx, err) {
		c.Events.Eventf(owner, v1.EventTypeWarning, FailedDelete, "Error deleting: %v", err)
	}
	return fmt.Errorf("unable to delete pods: %w", err)
}

// NamespaceTerminating tells whether a create was refused because the
// namespace is being deleted. Nothing is to be done then, and nobody to be told.
func NamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause)
}

// GivenUp tells whether a request failed because this process stops the
// controller or does not lead any more. That is nothing to report on an object.
func GivenUp(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, client.ErrFenced)
}

// OutcomeUnknown tells whether a request that failed may have been carried out
// all the same: the API server neither accepted nor refused it, as when the
// connection broke or the time was over. False for nil.
func OutcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case errors.As(err, &status):
		return status.Status().Code >= http.StatusInternalServerError || status.Status().Code == 0
	default:
		return true
	}
}
