package endpointslicemirroring

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/endpointslice/util"
)

// plan is what is to be written to get from the slices that are to those that are wanted.
type plan struct {
	creates, updates, deletes []*discovery.EndpointSlice
	// added, updated and removed endpoints.
	added, updated, removed int
}

// planFor the slices of Endpoints. Slices that are not wanted any more are used
// for wanted ones of their family, rather than deleted.
func planFor(endpoints *v1.Endpoints, w wanted, existing []*discovery.EndpointSlice) plan {
	var p plan
	byGroup := map[group][]*discovery.EndpointSlice{}
	for _, slice := range existing {
		key := group{slice.AddressType, util.NewPortMapKey(slice.Ports)}
		byGroup[key] = append(byGroup[key], slice)
	}
	for key, present := range byGroup {
		if w.groups[key] == nil {
			p.deletes = append(p.deletes, present...)
			continue
		}
		p.deletes = append(p.deletes, present[1:]...)
	}
	for _, slice := range p.deletes {
		p.removed += len(slice.Endpoints)
	}
	for key, c := range w.groups {
		slice := sliceOf(endpoints, key.family, c)
		present := byGroup[key]
		if len(present) == 0 {
			p.added += len(slice.Endpoints)
			p.creates = append(p.creates, slice)
			continue
		}
		added, updated, removed := difference(present[0], c.endpoints)
		p.added, p.updated, p.removed = p.added+added, p.updated+updated, p.removed+removed
		if added+updated+removed > 0 || !sameMetadata(present[0], slice) {
			p.updates = append(p.updates, renamed(slice, present[0]))
		}
	}
	p.reuse()
	for _, all := range [][]*discovery.EndpointSlice{p.creates, p.updates, p.deletes} {
		slices.SortFunc(all, func(a, b *discovery.EndpointSlice) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.AddressType, b.AddressType))
		})
	}
	return p
}

// reuse slices that would be deleted for those that would be created.
func (p *plan) reuse() {
	var creates []*discovery.EndpointSlice
	for _, slice := range p.creates {
		i := slices.IndexFunc(p.deletes, func(old *discovery.EndpointSlice) bool { return old.AddressType == slice.AddressType })
		if i < 0 {
			creates = append(creates, slice)
			continue
		}
		p.updates = append(p.updates, renamed(slice, p.deletes[i]))
		p.deletes = slices.Delete(p.deletes, i, i+1)
	}
	p.creates = creates
}

// renamed lets slice replace old, as it was seen: somebody may have taken it meanwhile.
func renamed(slice, old *discovery.EndpointSlice) *discovery.EndpointSlice {
	slice.Name, slice.GenerateName, slice.ResourceVersion = old.Name, "", old.ResourceVersion
	return slice
}

// difference between the endpoints of a slice and the wanted ones. One that is listed twice is removed.
func difference(slice *discovery.EndpointSlice, wanted util.EndpointSet) (added, updated, removed int) {
	found := util.EndpointSet{}
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		want := wanted.Get(endpoint)
		switch {
		case want == nil, found.Has(endpoint):
			removed++
			continue
		case !util.EndpointsEqualBeyondHash(want, endpoint):
			updated++
		}
		found.Insert(endpoint)
	}
	return wanted.Len() - found.Len(), updated, removed
}

// sameMetadata tells whether a slice has the labels, annotations and owner that
// it should have, and no owner that is another object of the same name.
func sameMetadata(slice, should *discovery.EndpointSlice) bool {
	if !maps.Equal(slice.Labels, should.Labels) || !maps.Equal(slice.Annotations, should.Annotations) {
		return false
	}
	owner, owned := should.OwnerReferences[0], false
	for i := range slice.OwnerReferences {
		ref := &slice.OwnerReferences[i]
		if ref.UID == owner.UID {
			owned = true
		} else if ref.Kind == owner.Kind && ref.Name == owner.Name {
			return false
		}
	}
	return owned
}

// sortedEndpoints of a set, so that the same endpoints make the same slice.
func sortedEndpoints(set util.EndpointSet) []*discovery.Endpoint {
	all := set.UnsortedList()
	slices.SortFunc(all, func(a, b *discovery.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Addresses[0], b.Addresses[0]), cmp.Compare(targetOf(a), targetOf(b)))
	})
	return all
}

func targetOf(e *discovery.Endpoint) string {
	if e.TargetRef == nil {
		return ""
	}
	return e.TargetRef.Namespace + "/" + e.TargetRef.Name
}
