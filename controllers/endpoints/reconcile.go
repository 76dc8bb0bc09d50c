package endpoints

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/subsets"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Reasons of events on Endpoints.
const (
	failedToCreate = "FailedToCreateEndpoint"
	failedToUpdate = "FailedToUpdateEndpoint"
)

// reconcile makes the Endpoints of a Service list its pods.
func (c *endpointsController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	defer c.pace.Begin(key)()
	if err := c.sync(ctx, key); err != nil {
		return work.Result{}, fmt.Errorf("reconcile the Endpoints of service %s: %w", key, err)
	}
	return work.Result{}, nil
}

func (c *endpointsController) sync(ctx context.Context, key work.ObjectName) error {
	if err := c.unsure.Settle(ctx, key); err != nil {
		return err
	}
	current, err := lookUp[*v1.Endpoints](c.endpoints, key)
	if err != nil {
		return fmt.Errorf("look up the Endpoints: %w", err)
	}
	service, err := lookUp[*v1.Service](c.services, key)
	if err != nil {
		return fmt.Errorf("look up the service: %w", err)
	}
	// 1. Nothing but the name ties Endpoints to their Service, so that the garbage
	// collector does not know about them.
	if service == nil {
		c.triggers.DeleteService(key.Namespace, key.Name)
		c.pace.Forget(key)
		return c.clear(ctx, key, current)
	}
	c.departed.take(key)
	if !servicepods.Selects(service) {
		return nil
	}

	// 2. What they should be.
	pods, err := servicepods.Of(c.pods, service)
	if err != nil {
		return err
	}
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	wanted, overCapacity := truncate(subsetsOf(service, pods))
	labels := labelsOf(service)

	// 3. If they are not.
	if current == nil {
		created := newEndpoints(service)
		created.Subsets, created.Labels, created.Annotations = wanted, labels, annotationsOf(nil, trigger, overCapacity)
		return c.create(ctx, key, created)
	}
	_, marked := current.Annotations[v1.EndpointsOverCapacity]
	if maps.Equal(current.Labels, labels) && marked == overCapacity && sameSubsets(current.Subsets, wanted) {
		return nil
	}
	changed := current.DeepCopy()
	changed.Subsets, changed.Labels = wanted, labels
	changed.Annotations = annotationsOf(current.Annotations, trigger, overCapacity)
	return c.update(ctx, key, changed)
}

// serviceExists asks the API server for a Service: the caches need not be equally
// fresh, and that the one of Services lacks it proves nothing.
func (c *endpointsController) serviceExists(ctx context.Context, key work.ObjectName) (bool, error) {
	_, err := c.client.CoreV1().Services(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return true, nil
	case notfound.ByAPIServer(err):
		return false, nil
	default:
		return false, fmt.Errorf("get the service: %w", err)
	}
}

// lookUp an object, nil when there is none.
func lookUp[T any](store cache.Indexer, key work.ObjectName) (T, error) {
	var none T
	obj, exists, err := store.GetByKey(key.String())
	if err != nil || !exists {
		return none, err
	}
	object, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("store has a %T", obj)
	}
	return object, nil
}

// ignoreVersions compares targets as they are, whatever version of them was seen.
var ignoreVersions = conversion.EqualitiesOrDie(func(a, b v1.ObjectReference) bool {
	a.ResourceVersion, b.ResourceVersion = "", ""
	return a == b
})

// sameSubsets tells whether subsets say the same, in whatever order.
func sameSubsets(current, wanted []v1.EndpointSubset) bool {
	return ignoreVersions.DeepEqual(current, wanted) || ignoreVersions.DeepEqual(subsets.Repack(current), wanted)
}

func (c *endpointsController) create(ctx context.Context, key work.ObjectName, endpoints *v1.Endpoints) error {
	_, err := c.client.CoreV1().Endpoints(key.Namespace).Create(ctx, endpoints, metav1.CreateOptions{})
	switch {
	case err == nil, podcontrol.NamespaceTerminating(err):
		return nil
	case apierrors.IsAlreadyExists(err):
		err = work.Overtaken(err)
	case !podcontrol.GivenUp(ctx, err):
		c.events.Eventf(endpoints, v1.EventTypeWarning, failedToCreate, "Failed to create endpoint for service %v/%v: %v",
			key.Namespace, key.Name, err)
	}
	c.unsure.Note(key, err)
	return fmt.Errorf("create the Endpoints: %w", err)
}

func (c *endpointsController) update(ctx context.Context, key work.ObjectName, endpoints *v1.Endpoints) error {
	_, err := c.client.CoreV1().Endpoints(key.Namespace).Update(ctx, endpoints, metav1.UpdateOptions{})
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err): // somebody else was faster, or has deleted them
	case !podcontrol.GivenUp(ctx, err):
		c.events.Eventf(endpoints, v1.EventTypeWarning, failedToUpdate, "Failed to update endpoint %v/%v: %v",
			key.Namespace, key.Name, err)
	}
	c.unsure.Note(key, err)
	return fmt.Errorf("update the Endpoints: %w", err)
}

// remove the very Endpoints that were found, if any, unless they have a
// Service after all, whose event is still to come: somebody may have made it anew,
// with Endpoints by hand.
func (c *endpointsController) remove(ctx context.Context, key work.ObjectName, endpoints *v1.Endpoints) error {
	if endpoints == nil {
		return nil
	}
	if exists, err := c.serviceExists(ctx, key); exists || err != nil {
		return err
	}
	err := c.client.CoreV1().Endpoints(endpoints.Namespace).Delete(ctx, endpoints.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(endpoints.UID)),
	})
	if err != nil && !notfound.ByAPIServer(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the Endpoints: %w", err)
	}
	return nil
}
