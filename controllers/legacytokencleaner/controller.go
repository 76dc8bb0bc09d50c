// Package legacytokencleaner removes the token Secrets that clusters before
// 1.24 made for every service account, once nobody has used them for a long
// time and no Pod refers to them. They are marked first, at which the API server
// refuses their tokens, and deleted when as long a time has passed again.
// Token Secrets that people have made are never touched.
package legacytokencleaner

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/tokensecrets"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var (
	serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	pods            = corev1.SchemeGroupVersion.WithResource("pods")
	configMaps      = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// A pass in which something failed is repeated after retryMin, then twice as
// long each time, up to retryMax. The next regular pass may be a day away.
const (
	retryMin = time.Minute
	retryMax = time.Hour
)

// refreshTimeout is how long a pass waits for caches that are behind.
const refreshTimeout = time.Minute

// Descriptor describes legacy-serviceaccount-token-cleaner-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.LegacyServiceAccountTokenCleanerControllerSection(),
		ServiceAccount: "legacy-service-account-token-cleaner",
		Requires:       []apischema.GroupVersionResource{tokensecrets.Resource, serviceAccounts, pods, configMaps},
		LiveFields:     []string{"interval", "cleanUpPeriod"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{trackingConfigMap}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"patch", "delete"}},
		},
		New: controller.NewFor(New),
	}
}

// passKey is the one key of the queue: the unit of work is a pass over all Secrets.
type passKey struct{}

// String is what the log shows.
func (passKey) String() string { return "all" }

// cleaner makes passes.
type cleaner struct {
	client   kubernetes.Interface
	logger   *slog.Logger
	clock    clock.PassiveClock
	secrets  corelisters.SecretLister
	accounts corelisters.ServiceAccountLister
	pods     corelisters.PodLister
	// catchUp is informers.Lease.CatchUp.
	catchUp func(ctx context.Context, since time.Time) error
	queue   *work.Queue[passKey]
	section atomic.Pointer[schema.LegacyServiceAccountTokenCleanerController]
}

// New makes the controller.
func New(env controller.Env, section *schema.LegacyServiceAccountTokenCleanerController) (*controller.Controller, error) {
	secrets, err := tokensecrets.Lease(env.Informers)
	if err != nil {
		return nil, err
	}
	accounts, err := env.Informers.Informer(serviceAccounts)
	if err != nil {
		return nil, fmt.Errorf("watch service accounts: %w", err)
	}
	allPods, err := env.Informers.Informer(pods)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c := &cleaner{
		client:   env.Client,
		logger:   env.Logger,
		clock:    env.Clock,
		secrets:  corelisters.NewSecretLister(secrets.Indexer()),
		accounts: corelisters.NewServiceAccountLister(accounts.Indexer()),
		pods:     corelisters.NewPodLister(allPods.Indexer()),
		catchUp:  env.Informers.CatchUp,
	}
	c.section.Store(section)
	c.queue = work.NewQueue(env.Work, work.Options[passKey]{
		Name:         "legacy_service_account_token_cleaner",
		Reconcile:    c.reconcile,
		FixedWorkers: 1,
		Limiter:      workqueue.NewTypedItemExponentialFailureRateLimiter[passKey](retryMin, retryMax),
	})
	c.queue.AddInitial(passKey{})
	return &controller.Controller{ApplyLive: c.applyLive}, nil
}

// applyLive begins a pass at once, as a restart with the new section would.
func (c *cleaner) applyLive(section schema.Section) {
	if changed, ok := section.(*schema.LegacyServiceAccountTokenCleanerController); ok {
		c.section.Store(changed)
		c.queue.Add(passKey{})
	}
}
