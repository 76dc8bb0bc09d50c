package discovery

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// versionsOf groups by how much the API server prefers them, the most preferred
// of a group first.
func versionsOf(groups []*metav1.APIGroup) map[schema.GroupVersion]int {
	ranks := map[schema.GroupVersion]int{}
	for _, group := range groups {
		for i, v := range group.Versions {
			rank := i + 1
			if v.Version == group.PreferredVersion.Version {
				rank = 0
			}
			ranks[schema.GroupVersion{Group: group.Name, Version: v.Version}] = rank
		}
	}
	return ranks
}

// prefer marks one version of each resource. One that was missing in the last
// poll is the last choice, so that a resource whose version changes has one
// preferred version all the time.
func prefer(found, missing map[schema.GroupVersionResource]Resource, versions map[schema.GroupVersion]int) {
	better := func(a, b schema.GroupVersionResource) bool {
		_, aMissing := missing[a]
		_, bMissing := missing[b]
		if aMissing != bMissing {
			return bMissing
		}
		aRank, aKnown := versions[a.GroupVersion()]
		bRank, bKnown := versions[b.GroupVersion()]
		switch {
		case aKnown != bKnown:
			return aKnown
		case aRank != bRank:
			return aRank < bRank
		}
		// The server has not told; kubectl orders versions like this.
		order := version.CompareKubeAwareVersionStrings(a.Version, b.Version)
		return cmp.Or(order, cmp.Compare(a.Version, b.Version)) > 0
	}
	preferred := map[schema.GroupResource]schema.GroupVersionResource{}
	for gvr := range found {
		if best, ok := preferred[gvr.GroupResource()]; !ok || better(gvr, best) {
			preferred[gvr.GroupResource()] = gvr
		}
	}
	for gvr, resource := range found {
		resource.Preferred = preferred[gvr.GroupResource()] == gvr
		found[gvr] = resource
	}
}
