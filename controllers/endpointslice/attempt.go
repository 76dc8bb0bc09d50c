package endpointslice

import (
	"context"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
)

// attempt is one reconcile of a Service. It is the client that the library
// writes with: its requests end with the reconcile's context, and are counted
// among what the reconcile wrote.
type attempt struct {
	kubernetes.Interface // of which the library uses DiscoveryV1 alone

	controller *sliceController
	ctx        context.Context // of the reconcile: the library passes none on
	service    *v1.Service
	key        cache.ObjectName
	// before are the slices at the beginning, after those by now, both by name.
	before, after map[string]*discovery.EndpointSlice
	// overtaken is the first refusal because somebody else was faster, failed the first other error.
	overtaken, failed error
}

func (c *sliceController) newAttempt(ctx context.Context, service *v1.Service, slices []*discovery.EndpointSlice) *attempt {
	a := &attempt{
		Interface:  c.client,
		controller: c,
		ctx:        ctx,
		service:    service,
		key:        nameOf(service),
		before:     make(map[string]*discovery.EndpointSlice, len(slices)),
		after:      make(map[string]*discovery.EndpointSlice, len(slices)),
	}
	for _, slice := range slices {
		a.before[slice.Name], a.after[slice.Name] = slice, slice
	}
	return a
}

// DiscoveryV1 implements kubernetes.Interface.
func (a *attempt) DiscoveryV1() discoveryclient.DiscoveryV1Interface {
	return discoveryOf{a.Interface.DiscoveryV1(), a}
}

type discoveryOf struct {
	discoveryclient.DiscoveryV1Interface
	attempt *attempt
}

// EndpointSlices implements discoveryclient.EndpointSlicesGetter.
func (d discoveryOf) EndpointSlices(namespace string) discoveryclient.EndpointSliceInterface {
	return slicesOf{d.DiscoveryV1Interface.EndpointSlices(namespace), d.attempt}
}

type slicesOf struct {
	discoveryclient.EndpointSliceInterface
	*attempt
}

// Create implements discoveryclient.EndpointSliceInterface.
func (s slicesOf) Create(_ context.Context, slice *discovery.EndpointSlice, _ metav1.CreateOptions) (*discovery.EndpointSlice, error) {
	created, err := s.controller.writer.Create(s.ctx, s.key, slice)
	return s.wrote(created, err)
}

// Update implements discoveryclient.EndpointSliceInterface.
func (s slicesOf) Update(_ context.Context, slice *discovery.EndpointSlice, _ metav1.UpdateOptions) (*discovery.EndpointSlice, error) {
	if before := s.before[slice.Name]; before != nil && slice.ResourceVersion == "" {
		// One that is used for something else. Somebody may have taken it meanwhile.
		slice.ResourceVersion = before.ResourceVersion
	}
	updated, err := s.controller.writer.Update(s.ctx, s.key, slice)
	return s.wrote(updated, err)
}

// Delete implements discoveryclient.EndpointSliceInterface.
func (s slicesOf) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	slice := s.before[name]
	if slice == nil {
		return nil // the library deletes what it was given only
	}
	if err := s.controller.writer.Delete(s.ctx, s.key, slice); err != nil {
		return s.note(err)
	}
	delete(s.after, name)
	return nil
}

func (a *attempt) wrote(slice *discovery.EndpointSlice, err error) (*discovery.EndpointSlice, error) {
	if err != nil {
		return nil, a.note(err)
	}
	a.after[slice.Name] = slice
	return slice, nil
}

func (a *attempt) note(err error) error {
	switch {
	case overtaken(err):
		if a.overtaken == nil {
			a.overtaken = err
		}
	case a.failed == nil:
		a.failed = err
	}
	return err
}

// observe tells the metrics what has become of the slices; err is the attempt's.
func (a *attempt) observe(err error) {
	m := a.controller.metrics
	old, present := util.EndpointSet{}, util.EndpointSet{}
	changed := 0
	for name, slice := range a.before {
		if a.after[name] != slice {
			changed++
			insertAll(old, slice)
		}
	}
	for name, slice := range a.after {
		if a.before[name] == slice {
			continue
		}
		if a.before[name] == nil {
			changed++
		}
		insertAll(present, slice)
	}
	m.added.Observe(float64(missing(present, old)))
	m.removed.Observe(float64(missing(old, present)))
	if err == nil {
		m.changedPerSync.WithLabelValues(topologyOf(a.service), a.trafficDistribution()).Observe(float64(changed))
	}
	m.setTotal(a.key, a.after, int(a.controller.maxPerSlice.Load()), a.trafficDistribution())
}

func insertAll(set util.EndpointSet, slice *discovery.EndpointSlice) {
	for i := range slice.Endpoints {
		set.Insert(&slice.Endpoints[i])
	}
}

// missing is how many of set others lacks.
func missing(set, others util.EndpointSet) int {
	count := 0
	for hash := range set {
		if _, ok := others[hash]; !ok {
			count++
		}
	}
	return count
}

func topologyOf(service *v1.Service) string {
	if wantsHints(service) {
		return "Auto"
	}
	return "Disabled"
}

// trafficDistribution that decides on the hints; empty when none does.
func (a *attempt) trafficDistribution() string {
	if a.service.Spec.TrafficDistribution == nil || wantsHints(a.service) {
		return ""
	}
	switch wanted := *a.service.Spec.TrafficDistribution; wanted {
	case v1.ServiceTrafficDistributionPreferClose:
		return wanted
	case v1.ServiceTrafficDistributionPreferSameZone, v1.ServiceTrafficDistributionPreferSameNode:
		if a.controller.preferSame {
			return wanted
		}
	}
	return ""
}

// hintEvents leaves out that hints have been enabled where slices had them
// already: a controller that was just started has forgotten that it said so.
type hintEvents struct {
	record.EventRecorder
	before map[string]*discovery.EndpointSlice
}

// Event implements record.EventRecorder.
func (e hintEvents) Event(object runtime.Object, eventType, reason, message string) {
	if reason == hintsEnabled && e.hadHints(message) {
		return
	}
	e.EventRecorder.Event(object, eventType, reason, message)
}

const hintsEnabled = "TopologyAwareHintsEnabled"

// hadHints of the family that message is about.
func (e hintEvents) hadHints(message string) bool {
	for _, slice := range e.before {
		if message != topologycache.FormatWithAddressType(topologycache.TopologyAwareHintsEnabled, slice.AddressType) {
			continue
		}
		for i := range slice.Endpoints {
			if slice.Endpoints[i].Hints != nil {
				return true
			}
		}
	}
	return false
}
