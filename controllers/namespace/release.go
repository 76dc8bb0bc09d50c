package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// writeAttempts with ever newer versions of a namespace that others change all the time.
const writeAttempts = 10

// terminate sets the phase of a namespace that is being deleted, which closes it
// to new objects. API servers do it themselves. It returns nil when it is gone.
func (c *namespaceController) terminate(ctx context.Context, n *corev1.Namespace) (*corev1.Namespace, error) {
	if n.Status.Phase == corev1.NamespaceTerminating {
		return n, nil
	}
	terminating, err := c.write(ctx, n, func(n *corev1.Namespace) (*corev1.Namespace, error) {
		if n.Status.Phase == corev1.NamespaceTerminating {
			return n, nil
		}
		n = n.DeepCopy()
		n.Status.Phase = corev1.NamespaceTerminating
		return c.client.CoreV1().Namespaces().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("set the phase of namespace %s: %w", n.Name, err)
	}
	if terminating != nil {
		c.deletions.restart(terminating)
	}
	return terminating, nil
}

// release the namespace from this controller. It returns the namespace if
// others still hold it, nil if it is gone.
func (c *namespaceController) release(ctx context.Context, n *corev1.Namespace) (*corev1.Namespace, error) {
	released, err := c.write(ctx, n, func(n *corev1.Namespace) (*corev1.Namespace, error) {
		if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
			return n, nil
		}
		return c.client.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{
			ObjectMeta: n.ObjectMeta,
			Spec:       corev1.NamespaceSpec{Finalizers: othersOf(n.Spec.Finalizers)},
		}, metav1.UpdateOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("release namespace %s: %w", n.Name, err)
	}
	if released == nil || len(released.Spec.Finalizers)+len(released.Finalizers) == 0 {
		c.logger.Debug("Namespace is empty and gone", "namespace", n.Name)
		return nil, nil
	}
	return released, nil
}

// othersOf are the finalizers without this controller's, sorted, each once.
func othersOf(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	slices.Sort(others)
	return slices.Compact(others)
}

var errUIDChanged = errors.New("namespace uid has changed across retries")

// write a version of the namespace, and newer ones when it has changed. It
// returns nil when it is gone.
func (c *namespaceController) write(
	ctx context.Context, n *corev1.Namespace, write func(*corev1.Namespace) (*corev1.Namespace, error),
) (*corev1.Namespace, error) {
	uid := n.UID
	for attempt := 1; ; attempt++ {
		written, err := write(n)
		switch {
		case err == nil:
			return written, nil
		case notfound.ByAPIServer(err):
			return nil, nil
		case !apierrors.IsConflict(err) || attempt == writeAttempts:
			return nil, err
		}
		n, err = c.client.CoreV1().Namespaces().Get(ctx, n.Name, metav1.GetOptions{})
		switch {
		case notfound.ByAPIServer(err):
			return nil, nil
		case err != nil:
			return nil, err
		case n.UID != uid:
			return nil, errUIDChanged
		}
	}
}
