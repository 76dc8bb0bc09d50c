// Package namespace empties namespaces that are being deleted, and then
// releases them.
//
// A namespace is swept at once when its deletion is seen, pods before anything
// else. It is released after a grace period, by a pass that has listed every
// resource that is served and left nothing: until then an object may appear
// whose creation was admitted before the deletion.
package namespace

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// retryMin and retryMax bound the back-off of a namespace that cannot be emptied.
	retryMin = 5 * time.Millisecond
	retryMax = time.Minute
)

var namespaceResource = corev1.SchemeGroupVersion.WithResource("namespaces")

// Descriptor describes namespace-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.NamespaceControllerSection(),
		ServiceAccount: "namespace-controller",
		// With it the controller is made when discovery knows what is served.
		Requires:   []apischema.GroupVersionResource{namespaceResource},
		LiveFields: []string{"syncPeriod", "deletionGracePeriod"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces/finalize", "namespaces/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "delete", "deletecollection"}},
		},
		New: controller.NewFor(New),
	}
}

// namespaceController reconciles namespaces, by name.
type namespaceController struct {
	logger     *slog.Logger
	clock      clock.WithTicker
	client     kubernetes.Interface
	metadata   metadata.Interface
	discovery  *discovery.Discovery
	namespaces corelisters.NamespaceLister
	queue      *work.Queue[string]
	settings   settings
	deletions  deletions
}

// New makes the controller.
func New(env controller.Env, section *schema.NamespaceController) (*controller.Controller, error) {
	informer, err := env.Informers.Informer(namespaceResource)
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	c := &namespaceController{
		logger:     env.Logger,
		clock:      env.Clock,
		client:     env.Client,
		metadata:   env.Metadata,
		discovery:  env.Discovery,
		namespaces: corelisters.NewNamespaceLister(informer.Indexer()),
		settings:   newSettings(section),
		deletions:  newDeletions(env.Clock),
	}
	c.queue = work.NewQueue(env.Work, work.Options[string]{
		Name:      "namespace",
		Reconcile: c.reconcile,
		Limiter:   work.NewLimiter[string](retryMin, retryMax),
	})
	if err := informer.AddEventHandler(c.handler()); err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	return &controller.Controller{
		ApplyLive: func(s schema.Section) {
			if section, ok := s.(*schema.NamespaceController); ok {
				c.settings.set(section)
			}
		},
		Runners: []func(context.Context) error{c.resync},
	}, nil
}

// reconcile a namespace that is being deleted.
func (c *namespaceController) reconcile(ctx context.Context, name string) (work.Result, error) {
	cached, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up namespace %s: %w", name, err)
	}
	if !unfinished(cached) {
		return work.Result{}, nil
	}
	early := c.early(cached)
	if early > 0 && !c.deletions.startSweep(cached) {
		return work.Result{RequeueAfter: early}, nil
	}
	if early <= 0 && c.stillHeld(ctx, cached) {
		return work.Result{RequeueAfter: heldRecheck}, nil
	}

	// The cache may be behind, and the name belong to another namespace by now.
	live, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if notfound.ByAPIServer(err) || err == nil && (live.UID != cached.UID || !unfinished(live)) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	if live, err = c.terminate(ctx, live); live == nil || err != nil {
		return work.Result{}, err
	}
	if c.early(live) > 0 {
		c.sweepEarly(ctx, live)
		// The sweep may have taken longer than the rest of the grace period.
		return work.Result{RequeueAfter: max(c.early(live), time.Nanosecond)}, ctx.Err()
	}
	return c.finish(ctx, live)
}

// early is how long the grace period of a namespace lasts still; not positive when it is over.
func (c *namespaceController) early(n *corev1.Namespace) time.Duration {
	return c.deletions.since(n).Add(c.settings.gracePeriod()).Sub(c.clock.Now())
}

// unfinished namespaces are being deleted, and not yet free of what holds their content.
func unfinished(n *corev1.Namespace) bool {
	return n.DeletionTimestamp != nil && len(n.Spec.Finalizers) > 0
}

// finish the deletion of a namespace: sweep it, and release it if nothing is left.
func (c *namespaceController) finish(ctx context.Context, n *corev1.Namespace) (work.Result, error) {
	c.deletions.hold(n, nil)
	findings := c.sweep(ctx, n)
	if err := ctx.Err(); err != nil {
		return work.Result{}, err // what was found is not all there is
	}
	if findings.clean() {
		released, err := c.release(ctx, n)
		if released == nil || err != nil {
			return work.Result{}, err
		}
		// Somebody else keeps it.
		c.writeConditions(ctx, released, findings)
		return work.Result{}, nil
	}
	c.writeConditions(ctx, n, findings)
	if err := findings.err(); err != nil {
		return work.Result{}, err
	}
	if !findings.podsLeft {
		c.deletions.hold(n, findings.kept)
	}
	return work.Result{RequeueAfter: findings.recheck()}, nil
}

// stillHeld tells whether all resources that the last sweep could not empty hold
// something still. Then another sweep is of no use, until it is time to bring
// the conditions up to date.
func (c *namespaceController) stillHeld(ctx context.Context, n *corev1.Namespace) bool {
	held := c.deletions.held(n)
	for _, r := range held {
		if some, err := c.holdsAny(ctx, n, r); err != nil || !some {
			return false
		}
	}
	return len(held) > 0
}
