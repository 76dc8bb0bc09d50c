package garbagecollector

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
)

// writeAttempts with ever newer versions of an object that others change all the time.
const writeAttempts = 10

func (c *collector) resource(s *subject) metadata.ResourceInterface {
	return c.client.Resource(s.resource).Namespace(s.namespace)
}

// subject of a write, as its monitor shows it, else as it is; nil when it is gone.
func (c *collector) subject(ctx context.Context, v view) (*subject, error) {
	if cached := c.monitors.object(v.resource, v.identity); cached != nil {
		return subjectOf(cached, v.identity, v.resource), nil
	}
	return c.reread(ctx, &subject{identity: v.identity, resource: v.resource})
}

// reread an object from the API server; nil when it is gone.
func (c *collector) reread(ctx context.Context, s *subject) (*subject, error) {
	live, err := c.resource(s).Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case notfound.ByAPIServer(err) || err == nil && live.UID != s.uid:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", s.kind, s.name, err)
	}
	return subjectOf(live, s.identity, s.resource), nil
}

// delete exactly the version of the object that was judged, or a later one with
// the same owners: a reference that is added in time saves it. One that others
// change faster than it can be read and deleted would live for ever, so that the
// last attempt names its UID alone.
func (c *collector) delete(ctx context.Context, s *subject, policy func() metav1.DeletionPropagation) error {
	judged := s.owners
	for attempt := 1; ; attempt++ {
		propagation := policy()
		preconditions := &metav1.Preconditions{UID: &s.uid, ResourceVersion: &s.resourceVersion}
		if attempt == writeAttempts {
			preconditions.ResourceVersion = nil
		}
		err := c.resource(s).Delete(ctx, s.name, metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: &propagation})
		switch {
		case err == nil:
			c.graph.setRequested(s.uid)
			c.logger.Debug("Deleted", "kind", s.kind, "namespace", s.namespace, "name", s.name, "policy", propagation)
			return nil
		case notfound.ByAPIServer(err):
			return nil
		}
		err = fmt.Errorf("delete %s %s: %w", s.kind, s.name, err)
		if !apierrors.IsConflict(err) || attempt == writeAttempts {
			return err
		}
		live, readErr := c.reread(ctx, s)
		if readErr != nil || live == nil || live.deleting {
			return readErr
		}
		if !equality.Semantic.DeepEqual(live.owners, judged) {
			return err
		}
		*s = *live
	}
}

// removeOwners takes references to owners away.
func (c *collector) removeOwners(ctx context.Context, s *subject, owners []types.UID) error {
	owners = slices.DeleteFunc(slices.Clone(owners), func(uid types.UID) bool { return !refers(s.owners, uid) })
	if len(owners) == 0 {
		return nil
	}
	_, err := c.patchOwners(ctx, s,
		func(s *subject) patch { return withoutOwners(s, owners) },
		func(s *subject) patch {
			return keepingOwners(s, func(ref *metav1.OwnerReference) bool { return !slices.Contains(owners, ref.UID) })
		})
	if err != nil {
		return fmt.Errorf("remove owners of %s %s: %w", s.kind, s.name, err)
	}
	return nil
}

// unblockOwners lets s block none of its owners. It returns the object as it is
// then; nil when it is gone.
func (c *collector) unblockOwners(ctx context.Context, s *subject) (*subject, error) {
	if !slices.ContainsFunc(s.owners, func(ref metav1.OwnerReference) bool { return blocks(s.owners, ref.UID) }) {
		return s, nil
	}
	unblocked, err := c.patchOwners(ctx, s, unblockingOwners, replacingBlockingOwners)
	if err != nil {
		return nil, fmt.Errorf("let %s %s not block its owners: %w", s.kind, s.name, err)
	}
	return unblocked, nil
}

// patchOwners by a strategic merge patch, which needs no version. Custom
// resources and some aggregated ones have none: they get a JSON merge patch.
// It returns the object as it is then; nil when it is gone.
func (c *collector) patchOwners(ctx context.Context, s *subject, strategic, merge func(*subject) patch) (*subject, error) {
	if scheme.Scheme.IsVersionRegistered(s.resource.GroupVersion()) {
		patched, err := c.patch(ctx, s, types.StrategicMergePatchType, strategic(s))
		if !apierrors.IsUnsupportedMediaType(err) {
			return patched, err
		}
	}
	return c.mergePatch(ctx, s, merge)
}

// mergePatch a version of the object, and newer ones when it has changed.
func (c *collector) mergePatch(ctx context.Context, s *subject, merge func(*subject) patch) (*subject, error) {
	for attempt := 1; ; attempt++ {
		patched, err := c.patch(ctx, s, types.MergePatchType, merge(s))
		if !apierrors.IsConflict(err) || attempt == writeAttempts {
			return patched, err
		}
		live, err := c.reread(ctx, s)
		if err != nil || live == nil {
			return nil, err
		}
		s = live
	}
}

// patch the object. It returns nil when it is gone.
func (c *collector) patch(ctx context.Context, s *subject, kind types.PatchType, p patch) (*subject, error) {
	body, err := p.bytes()
	if err != nil {
		return nil, fmt.Errorf("make a patch: %w", err)
	}
	patched, err := c.resource(s).Patch(ctx, s.name, kind, body, metav1.PatchOptions{})
	switch {
	case uidguard.Gone(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return subjectOf(patched, s.identity, s.resource), nil
}

// removeFinalizer of an object, unless it is gone or has it not.
func (c *collector) removeFinalizer(ctx context.Context, v view, finalizer string) error {
	s, err := c.subject(ctx, v)
	for attempt := 1; ; attempt++ {
		if err != nil || s == nil || !s.has(finalizer) {
			return err
		}
		_, err = c.patch(ctx, s, types.MergePatchType, withoutFinalizer(s, finalizer))
		if !apierrors.IsConflict(err) || attempt == writeAttempts {
			return err
		}
		s, err = c.reread(ctx, s)
	}
}
