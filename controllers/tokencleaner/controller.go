// Package tokencleaner deletes bootstrap tokens, Secrets in kube-system, once
// they have expired. Tokens without an expiration stay for ever.
package tokencleaner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/bootstraptoken"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Descriptor describes token-cleaner-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.TokenCleanerControllerSection(),
		ServiceAccount: "token-cleaner",
		Requires:       []apischema.GroupVersionResource{bootstraptoken.Resource},
		// In kube-system only.
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"delete"}},
		},
		New: controller.NewFor(New),
	}
}

// cleaner reconciles Secrets that hold bootstrap tokens, by namespace and name.
type cleaner struct {
	client kubernetes.Interface
	clock  clock.PassiveClock
	tokens corelisters.SecretLister
	queue  *work.Queue[work.ObjectName]
}

// New makes the controller.
func New(env controller.Env, _ *schema.TokenCleanerController) (*controller.Controller, error) {
	informer, err := bootstraptoken.Informer(env.Informers)
	if err != nil {
		return nil, fmt.Errorf("watch bootstrap tokens: %w", err)
	}
	c := &cleaner{client: env.Client, clock: env.Clock, tokens: corelisters.NewSecretLister(informer.Indexer())}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{Name: "token_cleaner", Reconcile: c.reconcile})
	if err := informer.AddEventHandler(c.tokenHandler()); err != nil {
		return nil, fmt.Errorf("watch bootstrap tokens: %w", err)
	}
	return &controller.Controller{}, nil
}

// tokenHandler needs no deletions: a key that waits for a token that is gone
// ends by itself, or finds the one that has got its name.
func (c *cleaner) tokenHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if token, ok := obj.(*v1.Secret); ok {
				c.queue.AddEvent(cache.MetaObjectToName(token), isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if token, ok := obj.(*v1.Secret); ok {
				c.queue.Add(cache.MetaObjectToName(token))
			}
		},
	}
}

// reconcile deletes a token that has expired, and comes back for one that will.
func (c *cleaner) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	token, err := c.tokens.Secrets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up bootstrap token %s: %w", key, err)
	}
	if token.DeletionTimestamp != nil {
		return work.Result{}, nil
	}
	remaining, expired := bootstraptoken.Expiry(token, c.clock.Now())
	if !expired {
		return work.Result{RequeueAfter: remaining}, nil // 0 is never
	}
	err = c.client.CoreV1().Secrets(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &token.UID, ResourceVersion: &token.ResourceVersion},
	})
	switch {
	case notfound.ByAPIServer(err), apierrors.IsConflict(err):
		// It is gone, or was changed, and may have got more time: the event of that is under way.
		return work.Result{}, nil
	case err != nil:
		return work.Result{}, fmt.Errorf("delete expired bootstrap token %s: %w", key, err)
	}
	return work.Result{}, nil
}
