// Package ownslices looks after the EndpointSlices that a controller has made
// for Services: it finds and writes them, and tells events of its own writes
// from those of others.
package ownslices

import (
	"cmp"
	"fmt"
	"slices"

	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/tools/cache"
)

// ByService is the index of EndpointSlices by the Service that their label names.
const ByService = "service"

// Indexers are what Of needs in the store of EndpointSlices.
func Indexers() cache.Indexers {
	return cache.Indexers{ByService: func(obj any) ([]string, error) {
		slice, ok := obj.(*discovery.EndpointSlice)
		if !ok {
			return nil, fmt.Errorf("index by service: got a %T, want an EndpointSlice", obj)
		}
		service, ok := ServiceOf(slice)
		if !ok {
			return nil, nil
		}
		return []string{service.String()}, nil
	}}
}

// ServiceOf returns the Service that a label of the slice names; false when none does.
func ServiceOf(slice *discovery.EndpointSlice) (cache.ObjectName, bool) {
	name := slice.Labels[discovery.LabelServiceName]
	return cache.NewObjectName(slice.Namespace, name), name != ""
}

// Of returns the slices of a Service that manager looks after and that are not
// being deleted, ordered by name. They may be given to k8s.io/endpointslice,
// which sorts their ports and addresses; else they must not be changed.
func Of(store cache.Indexer, service cache.ObjectName, manager string) ([]*discovery.EndpointSlice, error) {
	objs, err := store.ByIndex(ByService, service.String())
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of %s: %w", service, err)
	}
	found := make([]*discovery.EndpointSlice, 0, len(objs))
	for _, obj := range objs {
		slice, ok := obj.(*discovery.EndpointSlice)
		if !ok {
			return nil, fmt.Errorf("list EndpointSlices of %s: store has a %T", service, obj)
		}
		if slice.Labels[discovery.LabelManagedBy] == manager && slice.DeletionTimestamp == nil {
			found = append(found, sortable(slice))
		}
	}
	slices.SortFunc(found, func(a, b *discovery.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

// sortable returns the slice, or a copy where sorting would change what is shared.
func sortable(slice *discovery.EndpointSlice) *discovery.EndpointSlice {
	for i := range slice.Endpoints {
		if len(slice.Endpoints[i].Addresses) > 1 {
			return slice.DeepCopy()
		}
	}
	if len(slice.Ports) <= 1 {
		return slice
	}
	shallow := *slice
	shallow.Ports = slices.Clone(slice.Ports)
	return &shallow
}

// NamePrefix is the generateName of the slices of owner.
func NamePrefix(owner string) string {
	prefix := owner + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) > 0 {
		return owner
	}
	return prefix
}
