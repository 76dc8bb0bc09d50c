// Package rootca publishes the CA bundle that verifies the API server in every
// namespace, as ConfigMap kube-root-ca.crt, which pods mount beside their
// tokens. It repairs what is edited or deleted, and follows the bundle's file.
package rootca

import (
	"context"
	"fmt"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/syncmetrics"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// configMapName and dataKey are what kubelets project into pods.
	configMapName = "kube-root-ca.crt"
	dataKey       = "ca.crt"

	descriptionAnnotation = "kubernetes.io/description"
	description           = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as " +
		"the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."

	// immutableReason is the reason of the event about a ConfigMap that cannot be repaired.
	immutableReason = "ImmutableRootCA"
)

var (
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// Descriptor describes root-ca-certificate-publisher-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.RootCACertificatePublisherControllerSection(),
		ServiceAccount: "root-ca-cert-publisher",
		Requires:       []apischema.GroupVersionResource{namespaces, configMaps},
		Unavailable: func(section schema.Section, serverCA []byte) string {
			publisher, ok := section.(*schema.RootCACertificatePublisherController)
			if !ok {
				return fmt.Sprintf("its section is a %T", section)
			}
			return keymaterial.NoRootCA(publisher.RootCAFile, serverCA)
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// publisher reconciles namespaces, by name.
type publisher struct {
	client     kubernetes.Interface
	logger     *slog.Logger
	events     record.EventRecorder
	namespaces corelisters.NamespaceLister
	configMaps corelisters.ConfigMapLister
	queue      *work.Queue[string]
	ca         *keymaterial.Source[*keymaterial.Bundle]
}

// New makes the controller.
func New(env controller.Env, section *schema.RootCACertificatePublisherController) (*controller.Controller, error) {
	namespaceInformer, err := env.Informers.Informer(namespaces)
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	configMapInformer, err := env.Informers.SelectedInformer(configMaps, informers.Selection{FieldSelector: "metadata.name=" + configMapName})
	if err != nil {
		return nil, fmt.Errorf("watch config maps: %w", err)
	}
	syncs, err := syncmetrics.New(env, syncmetrics.Options{
		Prefix: "root_ca_cert_publisher",
		What:   "namespaces by the root CA certificate publisher",
	})
	if err != nil {
		return nil, err
	}
	c := &publisher{
		client:     env.Client,
		logger:     env.Logger,
		events:     env.Events,
		namespaces: corelisters.NewNamespaceLister(namespaceInformer.Indexer()),
		configMaps: corelisters.NewConfigMapLister(configMapInformer.Indexer()),
	}
	c.queue = work.NewQueue(env.Work, work.Options[string]{
		Name:      "root_ca_cert_publisher",
		Reconcile: syncmetrics.Measure(syncs, c.reconcile),
	})
	if c.ca, err = keymaterial.NewRootCA(env, section.RootCAFile, c.publishEverywhere); err != nil {
		return nil, err
	}
	if err := namespaceInformer.AddEventHandler(c.namespaceHandler()); err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	if err := configMapInformer.AddEventHandler(c.configMapHandler()); err != nil {
		return nil, fmt.Errorf("watch config maps: %w", err)
	}
	return &controller.Controller{Handler: keymaterial.Report{c.ca}, Runners: c.ca.Runners()}, nil
}

// publishEverywhere is called when there is another bundle.
func (c *publisher) publishEverywhere() {
	all, err := c.namespaces.List(labels.Everything())
	if err != nil {
		c.logger.Error("A new root CA reaches no namespace before its next event", "err", err)
		return
	}
	for _, namespace := range all {
		c.queue.Add(namespace.Name)
	}
}

func (c *publisher) namespaceHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if namespace, ok := obj.(*corev1.Namespace); ok && active(namespace) {
				c.queue.AddEvent(namespace.Name, isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if namespace, ok := obj.(*corev1.Namespace); ok && active(namespace) {
				c.queue.Add(namespace.Name)
			}
		},
	}
}

// configMapHandler lets only a ConfigMap be looked at that somebody made or
// changed, not one that the controller wrote itself. The initial list needs
// nothing: every namespace is looked at for its own sake.
func (c *publisher) configMapHandler() cache.ResourceEventHandler {
	changed := func(obj any) {
		if configMap, ok := obj.(*corev1.ConfigMap); ok && configMap.Name == configMapName && !right(configMap, c.ca.Current()) {
			c.queue.Add(configMap.Namespace)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if !isInInitialList {
				changed(obj)
			}
		},
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingObjectToName(obj); err == nil && key.Name == configMapName {
				c.queue.Add(key.Namespace)
			}
		},
	}
}

// active namespaces take new content.
func active(namespace *corev1.Namespace) bool {
	return namespace.Status.Phase == corev1.NamespaceActive && namespace.DeletionTimestamp == nil
}

// reconcile makes the ConfigMap of an active namespace hold the bundle.
func (c *publisher) reconcile(ctx context.Context, name string) (work.Result, error) {
	namespace, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up namespace %s: %w", name, err)
	}
	if !active(namespace) {
		return work.Result{}, nil
	}

	bundle := c.ca.Current()
	cached, err := c.configMaps.ConfigMaps(name).Get(configMapName)
	switch {
	case apierrors.IsNotFound(err):
		return work.Result{}, c.create(ctx, name, bundle)
	case err != nil:
		return work.Result{}, fmt.Errorf("look up config map %s/%s: %w", name, configMapName, err)
	case right(cached, bundle), cached.DeletionTimestamp != nil:
		return work.Result{}, nil // one held by a finalizer is made anew once it is gone
	case cached.Immutable != nil && *cached.Immutable && !maps.Equal(cached.Data, dataOf(bundle)):
		c.reportImmutable(cached)
		return work.Result{}, nil
	default:
		return work.Result{}, c.update(ctx, cached, bundle)
	}
}

func dataOf(bundle *keymaterial.Bundle) map[string]string {
	return map[string]string{dataKey: bundle.PEM}
}

// right tells whether nothing is to be done about the ConfigMap. Whoever has
// described it in other words keeps them.
func right(configMap *corev1.ConfigMap, bundle *keymaterial.Bundle) bool {
	return maps.Equal(configMap.Data, dataOf(bundle)) && configMap.Annotations[descriptionAnnotation] != ""
}

func (c *publisher) create(ctx context.Context, namespace string, bundle *keymaterial.Bundle) error {
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        configMapName,
			Annotations: map[string]string{descriptionAnnotation: description},
		},
		Data: dataOf(bundle),
	}
	_, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap, metav1.CreateOptions{})
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // its event is under way, and brings the namespace back if it is wrong
	case notfound.ByAPIServer(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the cache does not know yet that the namespace goes, or has gone
	default:
		return fmt.Errorf("create config map %s/%s: %w", namespace, configMapName, err)
	}
}

func (c *publisher) update(ctx context.Context, cached *corev1.ConfigMap, bundle *keymaterial.Bundle) error {
	configMap := cached.DeepCopy()
	configMap.Data = dataOf(bundle)
	if configMap.Annotations == nil {
		configMap.Annotations = map[string]string{}
	}
	configMap.Annotations[descriptionAnnotation] = description
	_, err := c.client.CoreV1().ConfigMaps(cached.Namespace).Update(ctx, configMap, metav1.UpdateOptions{})
	if notfound.ByAPIServer(err) {
		return nil // its deletion brings the namespace back
	}
	if err != nil {
		return fmt.Errorf("update config map %s/%s: %w", cached.Namespace, configMapName, err)
	}
	return nil
}

// reportImmutable says what only the ConfigMap's owner can repair. Its deletion brings the namespace back.
func (c *publisher) reportImmutable(configMap *corev1.ConfigMap) {
	c.logger.Warn("Root CA is not published in the namespace, whose ConfigMap is immutable: delete it, and it is made anew",
		"configMap", cache.MetaObjectToName(configMap).String())
	c.events.Event(configMap, corev1.EventTypeWarning, immutableReason,
		"does not hold the cluster's root CA and is immutable, so that it cannot be repaired: delete it, and it is made anew")
}
