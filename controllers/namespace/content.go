package namespace

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

const (
	// readTimeout bounds a request that reads, with all its repetitions: an API
	// server whose cache of a resource cannot be filled asks for them time and again.
	readTimeout = 10 * time.Second
	// deleteTimeout bounds a request that deletes, which the API server itself
	// ends after a minute by default.
	deleteTimeout = 65 * time.Second
	// pageSize of lists.
	pageSize = 500
)

// errReplaced ends a sweep: the namespace of that name is not the one that was
// to be emptied.
var errReplaced = errors.New("namespace was deleted, or replaced by another one, during its sweep")

// content is what a namespace holds of one resource.
type content struct {
	objects []object
	// finalizers with the number of objects that have them.
	finalizers map[string]int
	// undeleted objects need a DELETE.
	undeleted bool
	// until is when the last grace period of the objects ends; zero when none has one.
	until time.Time
}

type object struct {
	name string
	uid  types.UID
}

func (c *content) add(m *metav1.PartialObjectMetadata, now time.Time) {
	c.objects = append(c.objects, object{m.Name, m.UID})
	for _, f := range m.Finalizers {
		if c.finalizers == nil {
			c.finalizers = map[string]int{}
		}
		c.finalizers[f]++
	}
	c.undeleted = c.undeleted || needsDelete(m, now)
	if graceful(m) && m.DeletionTimestamp.After(c.until) {
		c.until = m.DeletionTimestamp.Time
	}
}

// graceful deletions have a grace period that somebody else ends, such as the
// kubelet of a pod. Until then only a shorter one changes anything.
func graceful(m *metav1.PartialObjectMetadata) bool {
	return m.DeletionTimestamp != nil && ptr.Deref(m.DeletionGracePeriodSeconds, 0) > 0
}

// needsDelete tells whether a DELETE of the object changes anything: it is not
// being deleted, or waits for dependents, which a deletion in the background
// ends, or nothing holds it although its time is over.
func needsDelete(m *metav1.PartialObjectMetadata, now time.Time) bool {
	switch {
	case m.DeletionTimestamp == nil:
		return true
	case graceful(m):
		return false
	case len(m.Finalizers) == 0:
		return !m.DeletionTimestamp.After(now)
	}
	return slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents) ||
		slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)
}

// empty a namespace of one resource, and tell what is left of it.
func (c *namespaceController) empty(ctx context.Context, n *corev1.Namespace, r resource) (content, error) {
	if !r.list {
		// What cannot be listed cannot be verified; it holds nothing up.
		return content{}, c.delete(ctx, n, r, nil)
	}
	found, err := c.look(ctx, n, r)
	switch {
	case r.notServed(err):
		return content{}, nil
	case apierrors.IsMethodNotSupported(err):
		return content{}, c.delete(ctx, n, r, nil)
	case err != nil || !found.undeleted:
		return found, err
	}
	if err := c.delete(ctx, n, r, found.objects); err != nil {
		return content{}, err
	}
	left, err := c.look(ctx, n, r)
	if r.notServed(err) || apierrors.IsMethodNotSupported(err) {
		return content{}, nil
	}
	return left, err
}

// emptyEarly sends the DELETE that empty would send, if it is one for all
// objects, and verifies nothing. Where objects are sure to be, it does not ask first.
func (c *namespaceController) emptyEarly(ctx context.Context, n *corev1.Namespace, r resource) error {
	if !r.list || !r.deleteCollection {
		return nil
	}
	if !r.expected() {
		if some, err := c.holdsAny(ctx, n, r); err != nil || !some {
			return err
		}
	}
	return c.delete(ctx, n, r, nil)
}

// notServed tells that a list says that there is nothing of the resource to be
// listed. A 404 without a status is no such answer as long as discovery shows
// the resource: its server may be starting, and what it keeps would be left behind.
func (r resource) notServed(err error) bool {
	return notfound.ByAPIServer(err) || r.vanished && apierrors.IsNotFound(err)
}

// unsupported tells that the resource has no such verb, or is not there any more.
func unsupported(err error) bool {
	return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// look at all objects.
func (c *namespaceController) look(ctx context.Context, n *corev1.Namespace, r resource) (content, error) {
	var found content
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.list(ctx, n, r, options)
		if err != nil {
			return content{}, err
		}
		now := c.clock.Now()
		for i := range page.Items {
			found.add(&page.Items[i], now)
		}
		if page.Continue == "" {
			return found, nil
		}
		options.Continue = page.Continue
	}
}

func (c *namespaceController) holdsAny(ctx context.Context, n *corev1.Namespace, r resource) (bool, error) {
	page, err := c.list(ctx, n, r, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, err
	}
	return len(page.Items) > 0, nil
}

func (c *namespaceController) list(
	ctx context.Context, n *corev1.Namespace, r resource, o metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	page, err := c.metadata.Resource(r.GroupVersionResource).Namespace(n.Name).List(ctx, o)
	if err != nil {
		return nil, r.failed("list", err)
	}
	return page, nil
}

// delete all objects with one request if the resource has it, else those that
// were listed, one after the other.
func (c *namespaceController) delete(ctx context.Context, n *corev1.Namespace, r resource, listed []object) error {
	// A DELETE of all objects names no namespace but by its name.
	if cached, err := c.namespaces.Get(n.Name); err != nil || cached.UID != n.UID {
		return errReplaced
	}
	// The default of some resources would make orphans.
	background := metav1.DeletePropagationBackground
	objects := c.metadata.Resource(r.GroupVersionResource).Namespace(n.Name)
	if r.deleteCollection {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
			defer cancel()
			return objects.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
		}()
		switch {
		case err == nil:
			return nil
		case !unsupported(err):
			return r.failed("delete all", err)
		}
	}
	for _, o := range listed {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
			defer cancel()
			return objects.Delete(ctx, o.name, metav1.DeleteOptions{
				PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &o.uid},
			})
		}()
		// Another object of that name is seen by the list that follows.
		if err != nil && !unsupported(err) && !apierrors.IsConflict(err) {
			return r.failed("delete "+o.name+" of", err)
		}
	}
	return nil
}
