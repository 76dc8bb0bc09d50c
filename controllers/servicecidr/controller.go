// Package servicecidr protects ServiceCIDRs: each carries a finalizer and says
// whether it is ready. One that is being deleted is held while a Service would
// be left with an address that no other ServiceCIDR contains, and for a short
// time in which all API servers learn not to allocate from it.
package servicecidr

import (
	"context"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var (
	serviceCIDRs = networkingv1.SchemeGroupVersion.WithResource("servicecidrs")
	ipAddresses  = networkingv1.SchemeGroupVersion.WithResource("ipaddresses")
)

// maxRetries is how often a failing ServiceCIDR is tried with back-off, about three
// minutes in all. After that it is tried at the slow pace of the queue.
const maxRetries = 15

// refreshTimeout is how long a worker waits for caches that are behind.
const refreshTimeout = 10 * time.Second

// Descriptor describes service-cidr-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.ServiceCIDRControllerSection(),
		ServiceAccount: "service-cidrs-controller",
		Requires:       []apischema.GroupVersionResource{serviceCIDRs, ipAddresses},
		FeatureGates:   []string{"MultiCIDRServiceAllocator"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{networkingv1.GroupName}, Resources: []string{"servicecidrs"},
				Verbs: []string{"get", "list", "watch", "patch", "update"}},
			{APIGroups: []string{networkingv1.GroupName}, Resources: []string{"servicecidrs/finalizers", "servicecidrs/status"},
				Verbs: []string{"patch", "update"}},
			{APIGroups: []string{networkingv1.GroupName}, Resources: []string{"ipaddresses"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// cidrController reconciles ServiceCIDRs, by name.
type cidrController struct {
	client    kubernetes.Interface
	events    record.EventRecorder
	clock     clock.PassiveClock
	cidrs     networkinglisters.ServiceCIDRLister
	addresses networkinglisters.IPAddressLister
	// catchUp is informers.Lease.CatchUp.
	catchUp func(ctx context.Context, since time.Time) error
	queue   *work.Queue[string]
}

// New makes the controller.
func New(env controller.Env, _ *schema.ServiceCIDRController) (*controller.Controller, error) {
	cidrs, err := env.Informers.Informer(serviceCIDRs)
	if err != nil {
		return nil, fmt.Errorf("watch service CIDRs: %w", err)
	}
	addresses, err := env.Informers.Informer(ipAddresses)
	if err != nil {
		return nil, fmt.Errorf("watch IP addresses: %w", err)
	}
	c := &cidrController{
		client:    env.Client,
		events:    env.Events,
		clock:     env.Clock,
		cidrs:     networkinglisters.NewServiceCIDRLister(cidrs.Indexer()),
		addresses: networkinglisters.NewIPAddressLister(addresses.Indexer()),
		catchUp:   env.Informers.CatchUp,
	}
	c.queue = work.NewQueue(env.Work, work.Options[string]{Name: "ipaddresses", Reconcile: c.reconcile, MaxRetries: maxRetries})
	if err := cidrs.AddEventHandler(c.cidrHandler()); err != nil {
		return nil, fmt.Errorf("watch service CIDRs: %w", err)
	}
	if err := addresses.AddEventHandler(c.addressHandler()); err != nil {
		return nil, fmt.Errorf("watch IP addresses: %w", err)
	}
	return &controller.Controller{}, nil
}

// reconcile makes a ServiceCIDR ready, or lets one go that may.
func (c *cidrController) reconcile(ctx context.Context, name string) (work.Result, error) {
	cidr, err := c.cidrs.Get(name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up service CIDR %s: %w", name, err)
	}
	if cidr.DeletionTimestamp != nil {
		return c.terminate(ctx, cidr)
	}
	if refused, err := c.addFinalizer(ctx, cidr); refused || err != nil {
		return again(refused), err
	}
	refused, err := c.setReady(ctx, cidr)
	return again(refused), err
}

// terminate holds a ServiceCIDR that is being deleted, or lets it go.
func (c *cidrController) terminate(ctx context.Context, cidr *networkingv1.ServiceCIDR) (work.Result, error) {
	needed, err := c.needed(cidr)
	if err == nil && !needed {
		if !protected(cidr) {
			return work.Result{}, nil // somebody else holds it
		}
		if rest := gracePeriod - c.clock.Since(cidr.DeletionTimestamp.Time); rest > 0 {
			return work.Result{RequeueAfter: rest}, nil
		}
		// The grace period is for what API servers know. The caches may be behind
		// for longer, and lack an address, or the deletion of another ServiceCIDR.
		if err := c.refresh(ctx); err != nil {
			return work.Result{}, fmt.Errorf("catch up before service CIDR %s is let go: %w", cidr.Name, err)
		}
		needed, err = c.needed(cidr)
	}
	if err != nil {
		return work.Result{}, err
	}
	if needed {
		// The end of an address, or a new ServiceCIDR, brings it back.
		refused, err := c.setCondition(ctx, cidr, held)
		return again(refused), err
	}
	refused, err := c.removeFinalizer(ctx, cidr)
	return again(refused), err
}

// refresh the caches with what the API server holds now.
func (c *cidrController) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return c.catchUp(ctx, c.clock.Now())
}

// again is the result of a reconcile whose write was refused because the
// cache is behind. Mostly an event is sooner.
func again(refused bool) work.Result {
	if refused {
		return work.Result{RequeueAfter: recheck}
	}
	return work.Result{}
}
