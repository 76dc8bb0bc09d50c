// Package serviceaccounttoken fills Secrets of type
// kubernetes.io/service-account-token with a signed token that does not expire,
// the CA of the API server, and the namespace. A Secret goes with its service
// account, and the account's reference to it with the Secret. It makes no Secrets.
//
// The files of the signing key and of the CA are followed while it runs.
package serviceaccounttoken

import (
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/tokensecrets"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")

// maxRetries is how often a failing key is tried with back-off, within six
// seconds. After that it is tried at the slow pace of the queue.
const maxRetries = 10

// Descriptor describes serviceaccount-token-controller. It has no service
// account of its own: no role is bootstrapped for one, and the daemon's
// identity may do what it does.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:     schema.ServiceAccountTokenControllerSection(),
		Requires:    []apischema.GroupVersionResource{tokensecrets.Resource, serviceAccounts},
		Unavailable: unavailable,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"update", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

func unavailable(section schema.Section, _ []byte) string {
	own, ok := section.(*schema.ServiceAccountTokenController)
	switch {
	case !ok:
		return fmt.Sprintf("its section is a %T", section)
	case own.KeyFile == "":
		return "keyFile is not set, so that there is no key to sign tokens with"
	default:
		return ""
	}
}

// tokenController has a queue for Secrets and one for service accounts that are gone.
type tokenController struct {
	client       kubernetes.Interface
	logger       *slog.Logger
	events       record.EventRecorder
	secrets      corelisters.SecretLister
	indexer      cache.Indexer
	accounts     corelisters.ServiceAccountLister
	secretQueue  *work.Queue[secretKey]
	accountQueue *work.Queue[accountKey]
	known        *known
	signer       *keymaterial.Source[*signer]
	// ca is an empty bundle while the API server is verified by the system's roots:
	// there is none then that could be given to anybody.
	ca *keymaterial.Source[*keymaterial.Bundle]
}

// New makes the controller.
func New(env controller.Env, section *schema.ServiceAccountTokenController) (*controller.Controller, error) {
	secretInformer, err := tokensecrets.Lease(env.Informers)
	if err != nil {
		return nil, err
	}
	if err := secretInformer.AddIndexers(cache.Indexers{accountIndex: indexByAccount}); err != nil {
		return nil, fmt.Errorf("index token secrets: %w", err)
	}
	accountInformer, err := env.Informers.Informer(serviceAccounts)
	if err != nil {
		return nil, fmt.Errorf("watch service accounts: %w", err)
	}
	c := &tokenController{
		client:   env.Client,
		logger:   env.Logger,
		events:   env.Events,
		secrets:  corelisters.NewSecretLister(secretInformer.Indexer()),
		indexer:  secretInformer.Indexer(),
		accounts: corelisters.NewServiceAccountLister(accountInformer.Indexer()),
		known:    controller.Recall(env.Memory, newKnown),
	}
	c.secretQueue = work.NewQueue(env.Work, work.Options[secretKey]{
		Name: "serviceaccount_tokens_secret", Reconcile: c.reconcileSecret, MaxRetries: maxRetries,
	})
	c.accountQueue = work.NewQueue(env.Work, work.Options[accountKey]{
		Name: "serviceaccount_tokens_service", Reconcile: c.reconcileAccount, MaxRetries: maxRetries,
	})
	for _, key := range c.known.all() {
		c.secretQueue.AddInitial(key)
	}
	made := &controller.Controller{}
	if err := c.followFiles(env, section, made); err != nil {
		return nil, err
	}
	if err := secretInformer.AddEventHandler(c.secretHandler()); err != nil {
		return nil, fmt.Errorf("watch token secrets: %w", err)
	}
	if err := accountInformer.AddEventHandler(c.accountHandler()); err != nil {
		return nil, fmt.Errorf("watch service accounts: %w", err)
	}
	return made, nil
}

// followFiles of the signing key and of the CA while made runs.
func (c *tokenController) followFiles(env controller.Env, section *schema.ServiceAccountTokenController, made *controller.Controller) error {
	var err error
	c.signer, err = keymaterial.New(env, keymaterial.Options[*signer]{
		Name:     "service account signing key",
		Files:    []keymaterial.File{{Path: section.KeyFile, Secret: true}},
		Parse:    parseSigner,
		Remedy:   "give a PEM file with a private key of RSA, or of ECDSA with curve P-256, P-384 or P-521",
		OnChange: c.tellKey,
	})
	if err != nil {
		return err
	}
	c.tellKey()
	if c.ca, err = keymaterial.NewOptionalRootCA(env, section.RootCAFile, c.fillAll); err != nil {
		return err
	}
	made.Runners = append(c.signer.Runners(), c.ca.Runners()...)
	made.Handler = keymaterial.Report{c.signer, c.ca}
	return nil
}

// tellKey says by which public key tokens are verified from now on.
func (c *tokenController) tellKey() {
	signer := c.signer.Current()
	c.logger.Info("Tokens are signed with this key", "algorithm", signer.algorithm, "keyID", signer.keyID)
}

// fillAll Secrets, since there is another CA.
func (c *tokenController) fillAll() {
	for _, obj := range c.indexer.List() {
		if secret, ok := obj.(*corev1.Secret); ok {
			c.secretQueue.Add(keyOf(secret))
		}
	}
}
