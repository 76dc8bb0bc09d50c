// Package resourcequota keeps the status of ResourceQuotas: which limits hold,
// and how much of them is used.
//
// The API server's admission charges a quota before an object is created. The
// controller counts what a new quota finds, gives back what is deleted or
// finished, and recounts everything from time to time. It never gives back what
// an object was charged for that is being created and not in the caches yet.
package resourcequota

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// gather is how long what is freed is waited for together: a burst of
	// deletions makes one count, and one write, in this time.
	gather = 100 * time.Millisecond
	// pace is the time between two writes that only give back what nobody waits
	// for: more than half of every limit is left.
	pace = time.Second
)

// podLevelResources is the gate of resources that a pod has as a whole (KEP-2837).
const podLevelResources = "PodLevelResources"

var quotas = corev1.SchemeGroupVersion.WithResource("resourcequotas")

// Descriptor describes resourcequota-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:           schema.ResourceQuotaControllerSection(),
		ServiceAccount:    "resourcequota-controller",
		Requires:          []apischema.GroupVersionResource{quotas},
		ReadsFeatureGates: []string{podLevelResources},
		LiveFields:        []string{"syncPeriod"},
		Monitors:          true,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"resourcequotas/status"}, Verbs: []string{"update"}},
		},
		New: controller.NewFor(New),
	}
}

// quotaController is one life of the controller.
type quotaController struct {
	logger    *slog.Logger
	clock     clock.WithTicker
	client    kubernetes.Interface
	informers *informers.Lease
	// podLevel resources count.
	podLevel bool

	books    *books
	registry quota.Registry
	monitors *monitors.Set
	// queue has the quotas that may have become other than their status says,
	// priority those that deny creations until they are counted.
	queue, priority *work.Queue[work.ObjectName]
	recounts        *recounts

	waiting  waiting
	caughtUp caughtUp
}

// waiting are quotas whose count needs a monitor that has not synced.
type waiting struct {
	mu   sync.Mutex
	keys map[work.ObjectName]struct{}
}

// New makes the controller.
func New(env controller.Env, section *schema.ResourceQuotaController) (*controller.Controller, error) {
	informer, err := env.Informers.Informer(quotas)
	if err != nil {
		return nil, fmt.Errorf("watch resource quotas: %w", err)
	}
	c := &quotaController{
		logger:    env.Logger,
		clock:     env.Clock,
		client:    env.Client,
		informers: env.Informers,
		podLevel:  env.FeatureEnabled(podLevelResources),
		books:     newBooks(env.Clock),
		registry:  generic.NewRegistry(nil),
		recounts:  newRecounts(env.Clock, section.SyncPeriod.Duration),
		waiting:   waiting{keys: map[work.ObjectName]struct{}{}},
	}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{Name: "resourcequota_primary", Reconcile: c.reconcile})
	c.priority = work.NewQueue(env.Work, work.Options[work.ObjectName]{Name: "resourcequota_priority", Reconcile: c.reconcile})
	c.monitors = monitors.New(monitors.Options{
		Informers: env.Informers,
		Discovery: env.Discovery,
		Clock:     env.Clock,
		Logger:    env.Logger,
		Wanted:    wanted,
		Lease:     c.lease,
		Handler:   c.monitorHandler,
		Synced:    c.monitorSynced,
		Ended:     c.monitorEnded,
		Changed:   c.resume,
	})
	// A standby has its caches ready.
	if err := c.monitors.Start(); err != nil {
		return nil, fmt.Errorf("start monitors: %w", err)
	}
	if err := informer.AddEventHandler(c.quotaHandler()); err != nil {
		return nil, fmt.Errorf("watch resource quotas: %w", err)
	}
	return &controller.Controller{
		ApplyLive: func(s schema.Section) {
			if section, ok := s.(*schema.ResourceQuotaController); ok {
				c.recounts.set(section.SyncPeriod.Duration)
			}
		},
		Handler: debugHandler{c},
		Runners: []func(context.Context) error{
			c.monitors.Follow,
			func(ctx context.Context) error { return c.recounts.run(ctx, c.recountAll) },
		},
	}, nil
}

// recountAll quotas, behind those that something has happened to.
func (c *quotaController) recountAll() {
	for _, a := range c.books.all() {
		c.queue.AddInitial(a.key)
	}
}
