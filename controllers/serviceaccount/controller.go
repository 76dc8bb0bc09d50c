// Package serviceaccount keeps a ServiceAccount named default in every active
// namespace, since pods cannot be created without it. It only ensures that the
// account exists: it never changes or deletes one.
package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// accountName is the account that every namespace has.
const accountName = "default"

var (
	namespaces      = corev1.SchemeGroupVersion.WithResource("namespaces")
	serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
)

// Descriptor describes serviceaccount-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.ServiceAccountControllerSection(),
		ServiceAccount: "service-account-controller",
		Requires:       []apischema.GroupVersionResource{namespaces, serviceAccounts},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"create"}},
		},
		New: controller.NewFor(New),
	}
}

// serviceAccountController reconciles namespaces, by name.
type serviceAccountController struct {
	client     kubernetes.Interface
	namespaces corelisters.NamespaceLister
	accounts   corelisters.ServiceAccountLister
	queue      *work.Queue[string]
}

// New makes the controller.
func New(env controller.Env, _ *schema.ServiceAccountController) (*controller.Controller, error) {
	namespaceInformer, err := env.Informers.Informer(namespaces)
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	accountInformer, err := env.Informers.Informer(serviceAccounts)
	if err != nil {
		return nil, fmt.Errorf("watch service accounts: %w", err)
	}
	c := &serviceAccountController{
		client:     env.Client,
		namespaces: corelisters.NewNamespaceLister(namespaceInformer.Indexer()),
		accounts:   corelisters.NewServiceAccountLister(accountInformer.Indexer()),
	}
	c.queue = work.NewQueue(env.Work, work.Options[string]{Name: "serviceaccount", Reconcile: c.reconcile})
	if err := namespaceInformer.AddEventHandler(c.namespaceHandler()); err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	if err := accountInformer.AddEventHandler(c.accountHandler()); err != nil {
		return nil, fmt.Errorf("watch service accounts: %w", err)
	}
	return &controller.Controller{}, nil
}

func (c *serviceAccountController) namespaceHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if namespace, ok := obj.(*corev1.Namespace); ok {
				c.queue.AddEvent(namespace.Name, isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if namespace, ok := obj.(*corev1.Namespace); ok {
				c.queue.Add(namespace.Name)
			}
		},
	}
}

func (c *serviceAccountController) accountHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				c.queue.Add(key.Namespace)
			}
		},
	}
}

// reconcile makes the account of an active namespace exist.
func (c *serviceAccountController) reconcile(ctx context.Context, name string) (work.Result, error) {
	namespace, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up namespace %s: %w", name, err)
	}

	// A namespace on its way out takes no new content.
	if namespace.Status.Phase != corev1.NamespaceActive {
		return work.Result{}, nil
	}

	// One that is being deleted, held by a finalizer, is there still; its
	// name is free only with the event of its end.
	_, err = c.accounts.ServiceAccounts(name).Get(accountName)
	if err == nil {
		return work.Result{}, nil
	}
	if !apierrors.IsNotFound(err) {
		return work.Result{}, fmt.Errorf("look up service account %s/%s: %w", name, accountName, err)
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: accountName}}
	_, err = c.client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return work.Result{}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The cache does not know yet that the namespace is on its way out.
		return work.Result{}, nil
	default:
		return work.Result{}, fmt.Errorf("create service account %s/%s: %w", name, accountName, err)
	}
}
