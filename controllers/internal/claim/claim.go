// Package claim decides which objects belong to an owner, and makes it so:
// matching orphans are adopted, owned objects that no longer match are released.
package claim

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// Claims are one owner's on objects of type T. Make a new value for each
// reconcile: what the API server said about the owner is kept in it. All
// fields but Match and Finalizers are required.
type Claims[T metav1.Object] struct {
	Owner     metav1.Object
	OwnerKind schema.GroupVersionKind
	// Kind of the objects, for errors.
	Kind     string
	Selector labels.Selector
	// Match is demanded beside Selector. Default: nil, Selector decides.
	Match func(T) bool
	// Finalizers are added by an adoption and removed by a release.
	Finalizers []string
	// GetOwner reads the owner from the API server, not from a cache. It is
	// called once at most, and only if there is an orphan to be adopted.
	GetOwner func(ctx context.Context, name string) (metav1.Object, error)
	// Patch sends a strategic merge patch of object and returns the answer.
	Patch func(ctx context.Context, object T, patch []byte) (T, error)

	// checked and refusal are what GetOwner has told.
	checked bool
	refusal error
}

// Claim returns those of candidates that belong to the owner, an adopted one
// as the API server returned it. Candidates that others control are left alone,
// and while the owner is being deleted nothing is adopted or released. An
// object that is gone is no error; after any other error the remaining
// candidates are still dealt with, but the result must not be acted on.
func (c *Claims[T]) Claim(ctx context.Context, candidates []T) ([]T, error) {
	claimed := make([]T, 0, len(candidates))
	var errs []error
	for _, object := range candidates {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		mine, ok, err := c.claim(ctx, object)
		if err != nil {
			errs = append(errs, err)
		} else if ok {
			claimed = append(claimed, mine)
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return nil, err
	}
	return claimed, nil
}

func (c *Claims[T]) claim(ctx context.Context, object T) (T, bool, error) {
	var none T
	ownerGoes := c.Owner.GetDeletionTimestamp() != nil
	controller := metav1.GetControllerOfNoCopy(object)
	switch {
	case controller != nil && controller.UID != c.Owner.GetUID():
		return none, false, nil
	case controller != nil && c.matches(object):
		return object, true, nil
	case controller != nil && !ownerGoes:
		return none, false, c.release(ctx, object)
	case controller != nil || ownerGoes, !c.matches(object), object.GetDeletionTimestamp() != nil:
		return none, false, nil
	case c.Owner.GetNamespace() != "" && c.Owner.GetNamespace() != object.GetNamespace():
		return none, false, nil
	}
	return c.adopt(ctx, object)
}

func (c *Claims[T]) matches(object T) bool {
	return c.Selector.Matches(labels.Set(object.GetLabels())) && (c.Match == nil || c.Match(object))
}

// adopt returns false without an error when object is gone.
func (c *Claims[T]) adopt(ctx context.Context, object T) (T, bool, error) {
	var none T
	if !c.checked {
		c.checked, c.refusal = true, c.mayAdopt(ctx)
	}
	if c.refusal != nil {
		return none, false, fmt.Errorf("can't adopt %s %s/%s (%s): %w",
			c.Kind, object.GetNamespace(), object.GetName(), object.GetUID(), c.refusal)
	}
	patch, err := adoption(c.Owner, c.OwnerKind, object.GetUID(), c.Finalizers)
	if err != nil {
		return none, false, err
	}
	adopted, err := c.Patch(ctx, object, patch)
	switch {
	case notfound.ByAPIServer(err):
		return none, false, nil
	case err != nil:
		return none, false, fmt.Errorf("adopt %s %s/%s: %w", c.Kind, object.GetNamespace(), object.GetName(), err)
	}
	return adopted, true, nil
}

// mayAdopt asks the API server whether the owner is still there, since the
// garbage collector makes orphans of a deleted owner's objects on purpose.
func (c *Claims[T]) mayAdopt(ctx context.Context) error {
	fresh, err := c.GetOwner(ctx, c.Owner.GetName())
	if err != nil {
		return err
	}
	if fresh.GetUID() != c.Owner.GetUID() {
		return fmt.Errorf("original %s %s/%s is gone: got uid %s, wanted %s",
			c.OwnerKind.Kind, c.Owner.GetNamespace(), c.Owner.GetName(), fresh.GetUID(), c.Owner.GetUID())
	}
	if at := fresh.GetDeletionTimestamp(); at != nil {
		return fmt.Errorf("%s/%s has just been deleted at %s", c.Owner.GetNamespace(), c.Owner.GetName(), at)
	}
	return nil
}

func (c *Claims[T]) release(ctx context.Context, object T) error {
	patch, err := releasing(c.Owner.GetUID(), object.GetUID(), c.Finalizers)
	if err != nil {
		return err
	}
	_, err = c.Patch(ctx, object, patch)
	// Invalid: the object is another one now, or has lost the reference.
	if err == nil || notfound.ByAPIServer(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return fmt.Errorf("release %s %s/%s: %w", c.Kind, object.GetNamespace(), object.GetName(), err)
}

type patch struct {
	Metadata patchedMetadata `json:"metadata"`
}

// patchedMetadata names the UID, which the API server takes as a precondition.
type patchedMetadata struct {
	UID               types.UID `json:"uid"`
	OwnerReferences   any       `json:"ownerReferences"`
	Finalizers        []string  `json:"finalizers,omitempty"`
	RemovedFinalizers []string  `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
}

// adoption is the patch that makes owner the controller. References merge by
// UID: a plain one to the same owner becomes the controlling one, and another
// controller makes the API server refuse the patch.
func adoption(owner metav1.Object, kind schema.GroupVersionKind, uid types.UID, finalizers []string) ([]byte, error) {
	return json.Marshal(patch{patchedMetadata{
		UID:             uid,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		Finalizers:      finalizers,
	}})
}

type removedReference struct {
	Patch string    `json:"$patch"`
	UID   types.UID `json:"uid"`
}

// releasing is the patch that removes the reference to owner.
func releasing(owner, uid types.UID, finalizers []string) ([]byte, error) {
	return json.Marshal(patch{patchedMetadata{
		UID:               uid,
		OwnerReferences:   []removedReference{{Patch: "delete", UID: owner}},
		RemovedFinalizers: finalizers,
	}})
}
