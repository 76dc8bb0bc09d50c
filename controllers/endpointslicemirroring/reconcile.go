package endpointslicemirroring

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Reasons of events on Endpoints.
const (
	invalidIPAddress = "InvalidIPAddress"
	tooManyAddresses = "TooManyAddressesToMirror"
)

// reconcile makes the slices of Endpoints mirror them.
func (c *mirrorController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	began := c.clock.Now()
	defer func() { c.metrics.duration.Observe(c.clock.Since(began).Seconds()) }()
	if err := c.sync(ctx, key); err != nil {
		return work.Result{}, fmt.Errorf("mirror Endpoints %s: %w", key, err)
	}
	return work.Result{}, nil
}

func (c *mirrorController) sync(ctx context.Context, key work.ObjectName) error {
	if err := c.unsure.Settle(ctx, key); err != nil {
		return err
	}
	c.tracker.Begin(key)
	defer func() {
		if c.tracker.End(key) {
			c.sliceChanged(key)
		}
	}()
	endpoints, existing, err := c.lookUp(key)
	if err == nil && endpoints == nil && len(existing) > 0 {
		// At a start the caches need not be equally fresh: that others lack what
		// slices mirror proves nothing yet.
		if err := c.catchUp(ctx, c.began); err != nil {
			return fmt.Errorf("catch up before EndpointSlices are removed: %w", err)
		}
		endpoints, existing, err = c.lookUp(key)
	}
	if err != nil {
		return err
	}
	if endpoints == nil {
		return c.removeAll(ctx, key, existing)
	}

	w := wantedOf(endpoints, int(c.maxPerSubset.Load()))
	c.metrics.skipped.Observe(float64(w.invalid + w.surplus))
	if w.invalid > 0 {
		c.events.Eventf(endpoints, v1.EventTypeWarning, invalidIPAddress,
			"Skipped %d invalid IP addresses when mirroring to EndpointSlices", w.invalid)
	}
	if w.surplus > 0 {
		c.events.Eventf(endpoints, v1.EventTypeWarning, tooManyAddresses,
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped",
			c.maxPerSubset.Load(), w.invalid+w.surplus)
	}
	p := planFor(endpoints, w, existing)
	c.metrics.observe(p)
	if err := c.carryOut(ctx, key, endpoints, p); err != nil {
		return err
	}
	c.metrics.setTotal(key, w)
	return nil
}

// lookUp what is to be mirrored, nil when nothing is, and the slices that there are.
func (c *mirrorController) lookUp(key work.ObjectName) (*v1.Endpoints, []*discovery.EndpointSlice, error) {
	endpoints, err := c.toMirror(key)
	if err != nil {
		return nil, nil, err
	}
	existing, err := c.slicesOf(key)
	return endpoints, existing, err
}

// toMirror returns the Endpoints, or nil when nothing is to be mirrored: they
// are not there or do not want it, or a Service without selector is missing.
func (c *mirrorController) toMirror(key work.ObjectName) (*v1.Endpoints, error) {
	obj, exists, err := c.endpoints.GetByKey(key.String())
	if err != nil {
		return nil, fmt.Errorf("look up the Endpoints: %w", err)
	}
	endpoints, ok := obj.(*v1.Endpoints)
	if !exists || !ok || !mirrorable(endpoints) {
		return nil, nil
	}
	obj, exists, err = c.services.GetByKey(key.String())
	if err != nil {
		return nil, fmt.Errorf("look up the service: %w", err)
	}
	service, ok := obj.(*v1.Service)
	if !exists || !ok || service.Spec.Selector != nil {
		return nil, nil
	}
	return endpoints, nil
}

// slicesOf Endpoints that this controller looks after. Those that it has deleted
// are left out, whether the cache shows that already or not.
func (c *mirrorController) slicesOf(key work.ObjectName) ([]*discovery.EndpointSlice, error) {
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

// removeAll slices of what is not mirrored any more. All are tried.
func (c *mirrorController) removeAll(ctx context.Context, key work.ObjectName, existing []*discovery.EndpointSlice) error {
	var errs []error
	for _, slice := range existing {
		if err := c.writer.Delete(ctx, key, slice); err != nil {
			errs = append(errs, err)
		}
	}
	c.metrics.forget(key)
	if len(errs) > 0 {
		return fmt.Errorf("error(s) deleting %d/%d EndpointSlices for %s/%s Endpoints, including: %w",
			len(errs), len(existing), key.Namespace, key.Name, errors.Join(errs...))
	}
	return nil
}

// carryOut a plan, up to the first error. Endpoints that are being deleted get
// no new slices, which the garbage collector would have to find.
func (c *mirrorController) carryOut(ctx context.Context, key work.ObjectName, endpoints *v1.Endpoints, p plan) error {
	if endpoints.DeletionTimestamp == nil {
		for _, slice := range p.creates {
			if _, err := c.writer.Create(ctx, key, slice); podcontrol.NamespaceTerminating(err) {
				return nil
			} else if err != nil {
				return fmt.Errorf("create an EndpointSlice: %w", err)
			}
		}
	}
	for _, slice := range p.updates {
		if _, err := c.writer.Update(ctx, key, slice); err != nil {
			return fmt.Errorf("update EndpointSlice %s: %w", slice.Name, err)
		}
	}
	for _, slice := range p.deletes {
		if err := c.writer.Delete(ctx, key, slice); err != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", slice.Name, err)
		}
	}
	return nil
}
