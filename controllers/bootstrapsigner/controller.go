// Package bootstrapsigner signs the public ConfigMap kube-public/cluster-info
// with the bootstrap tokens that may sign, so that a joining node that knows
// nothing but its token can trust the address and CA of the cluster in it.
package bootstrapsigner

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/bootstraptoken"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var configMaps = v1.SchemeGroupVersion.WithResource("configmaps")

// clusterInfo is the ConfigMap that is signed, and the only key of the queue.
var clusterInfo = cache.NewObjectName(metav1.NamespacePublic, api.ConfigMapClusterInfo)

// Descriptor describes bootstrap-signer-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.BootstrapSignerControllerSection(),
		ServiceAccount: "bootstrap-signer",
		Requires:       []apischema.GroupVersionResource{bootstraptoken.Resource, configMaps},
		// In kube-public only.
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{clusterInfo.Name}, Verbs: []string{"update"},
		}},
		New: controller.NewFor(New),
	}
}

// signer reconciles clusterInfo.
type signer struct {
	client     kubernetes.Interface
	logger     *slog.Logger
	clock      clock.PassiveClock
	configMaps corelisters.ConfigMapLister
	tokens     corelisters.SecretLister
	queue      *work.Queue[work.ObjectName]
}

// New makes the controller.
func New(env controller.Env, _ *schema.BootstrapSignerController) (*controller.Controller, error) {
	tokens, err := bootstraptoken.Informer(env.Informers)
	if err != nil {
		return nil, fmt.Errorf("watch bootstrap tokens: %w", err)
	}
	info, err := env.Informers.SelectedInformer(configMaps, informers.Selection{
		Namespace: clusterInfo.Namespace, FieldSelector: "metadata.name=" + clusterInfo.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", clusterInfo, err)
	}
	s := &signer{
		client:     env.Client,
		logger:     env.Logger,
		clock:      env.Clock,
		configMaps: corelisters.NewConfigMapLister(info.Indexer()),
		tokens:     corelisters.NewSecretLister(tokens.Indexer()),
	}
	s.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{Name: "bootstrap_signer_queue", Reconcile: s.reconcile})
	// Whichever token it is about, the ConfigMap is looked at.
	err = tokens.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.queue.Add(clusterInfo) },
		UpdateFunc: func(any, any) { s.queue.Add(clusterInfo) },
		DeleteFunc: func(any) { s.queue.Add(clusterInfo) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch bootstrap tokens: %w", err)
	}
	err = info.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.queue.Add(clusterInfo) },
		UpdateFunc: func(any, any) { s.queue.Add(clusterInfo) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", clusterInfo, err)
	}
	return &controller.Controller{}, nil
}

// reconcile makes the signatures those of the tokens that may sign now, and
// comes back when the first of these expires.
func (s *signer) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	info, err := s.configMaps.ConfigMaps(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up config map %s: %w", key, err)
	}
	kubeconfig, ok := info.Data[api.KubeConfigKey]
	if !ok {
		return work.Result{}, nil
	}
	signatures, next, err := s.signatures(kubeconfig)
	if err != nil {
		return work.Result{}, err
	}
	result := work.Result{RequeueAfter: next}
	data, changed := withSignatures(info.Data, signatures)
	if !changed {
		return result, nil
	}
	if ptr.Deref(info.Immutable, false) {
		s.logger.Warn("The signatures are not right any more, but the config map is immutable", "configMap", key.String())
		return result, nil
	}
	signed := info.DeepCopy()
	signed.Data = data
	_, err = s.client.CoreV1().ConfigMaps(key.Namespace).Update(ctx, signed, metav1.UpdateOptions{})
	if err != nil && !notfound.ByAPIServer(err) {
		return result, fmt.Errorf("sign config map %s: %w", key, err)
	}
	return result, nil
}

// signatures of kubeconfig by key of the ConfigMap, and when the first of them
// is to go; 0 if none will.
func (s *signer) signatures(kubeconfig string) (map[string]string, time.Duration, error) {
	tokens, err := s.tokens.Secrets(bootstraptoken.Namespace).List(labels.Everything())
	if err != nil {
		return nil, 0, fmt.Errorf("list bootstrap tokens: %w", err)
	}
	signatures := map[string]string{}
	var next time.Duration
	now := s.clock.Now()
	for _, secret := range tokens {
		token, ok := bootstraptoken.SignerOf(secret, now)
		if !ok {
			continue
		}
		signature, err := token.Sign(kubeconfig)
		if err != nil {
			s.logger.Error("Bootstrap token cannot sign", "token", token, "err", err)
			continue
		}
		signatures[api.JWSSignatureKeyPrefix+token.ID] = signature
		next = work.Soonest(next, token.Remaining)
	}
	return signatures, next, nil
}
