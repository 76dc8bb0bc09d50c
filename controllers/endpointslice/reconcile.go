package endpointslice

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/util"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Reasons of events on a Service.
const (
	failedToListPods   = "FailedToListPods"
	failedToListSlices = "FailedToListEndpointSlices"
	failedToUpdate     = "FailedToUpdateEndpointSlices"
)

// reconcile makes the slices of a Service list its pods.
func (c *sliceController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	defer c.pace.Begin(key)()
	err := c.sync(ctx, key)
	if err != nil {
		c.metrics.syncs.WithLabelValues(resultError).Inc()
		return work.Result{}, fmt.Errorf("reconcile the EndpointSlices of service %s: %w", key, err)
	}
	c.metrics.syncs.WithLabelValues(resultSuccess).Inc()
	return work.Result{}, nil
}

func (c *sliceController) sync(ctx context.Context, key work.ObjectName) error {
	// 1. Slices of a Service that is gone are garbage, for the garbage collector.
	obj, exists, err := c.services.GetByKey(key.String())
	if err != nil {
		return fmt.Errorf("look up the service: %w", err)
	}
	if !exists {
		c.forget(key)
		return nil
	}
	service, ok := obj.(*v1.Service)
	if !ok {
		return fmt.Errorf("look up the service: store has a %T", obj)
	}
	if !servicepods.Selects(service) {
		return nil
	}

	// 2. What is, and what should be.
	if err := c.unsure.Settle(ctx, key); err != nil {
		return err
	}
	if err := c.awaitNodes(); err != nil {
		return err
	}
	c.tracker.Begin(key)
	defer func() {
		if c.tracker.End(key) {
			c.sliceChanged(key)
		}
	}()
	pods, err := servicepods.Of(c.pods, service)
	if err != nil {
		c.events.Eventf(service, v1.EventTypeWarning, failedToListPods, "Error listing Pods for Service %s/%s: %v",
			key.Namespace, key.Name, err)
		return err
	}
	slices, err := c.slicesOf(key)
	if err != nil {
		c.events.Eventf(service, v1.EventTypeWarning, failedToListSlices, "Error listing Endpoint Slices for Service %s/%s: %v",
			key.Namespace, key.Name, err)
		return err
	}
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)

	// 3. The library finds the fewest writes from one to the other, and makes them.
	a := c.newAttempt(ctx, service, slices)
	err = a.reconciler().Reconcile(c.logr, service, servicepods.WithPublishable(pods), slices, trigger)
	a.observe(err)
	if err == nil {
		return nil
	}
	if a.overtaken != nil {
		// Somebody else was faster, which the object need not tell of.
		return a.overtaken
	}
	if !podcontrol.GivenUp(ctx, errors.Join(err, a.failed)) {
		c.events.Eventf(service, v1.EventTypeWarning, failedToUpdate, "Error updating Endpoint Slices for Service %s/%s: %v",
			key.Namespace, key.Name, err)
	}
	if a.failed != nil {
		return a.failed // the library's error has only its text
	}
	return err
}

func (c *sliceController) forget(key work.ObjectName) {
	c.triggers.DeleteService(key.Namespace, key.Name)
	c.pace.Forget(key)
	c.tracker.Forget(key)
	for _, family := range []discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6} {
		c.topology.RemoveHints(key.String(), family)
	}
	c.metrics.forget(key)
}

// slicesOf a Service that this controller looks after. Those that it has deleted
// are left out, whether the cache shows that already or not.
func (c *sliceController) slicesOf(key work.ObjectName) ([]*discovery.EndpointSlice, error) {
	listed, err := ownslices.Of(c.slices, key, manager)
	if err != nil {
		return nil, err
	}
	present := listed[:0]
	for _, slice := range listed {
		if !c.tracker.Deleted(key, slice.UID) {
			present = append(present, slice)
		}
	}
	return present, nil
}

// reconciler of one attempt. The library's writes have no context and no owner
// but those of the client that it is given, so it gets a client of its own.
func (a *attempt) reconciler() *endpointslice.Reconciler {
	c := a.controller
	return endpointslice.NewReconciler(a, c.nodes, int32(c.maxPerSlice.Load()), util.NewEndpointSliceTracker(), c.topology,
		hintEvents{c.events, a.before}, manager, endpointslice.WithPreferSameTrafficDistributionEnabled(c.preferSame))
}

// overtaken tells whether a write was refused because the slice is not what the cache shows.
func overtaken(err error) bool { return apierrors.IsConflict(err) || notfound.ByAPIServer(err) }

func nameOf(service *v1.Service) cache.ObjectName { return cache.MetaObjectToName(service) }
