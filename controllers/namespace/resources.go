package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Verbs that matter here.
const (
	verbDelete           = "delete"
	verbDeleteCollection = "deletecollection"
	verbList             = "list"
)

// podResource is emptied before all others.
var podResource = apischema.GroupVersionResource{Version: "v1", Resource: "pods"}

// resource whose objects are in namespaces and can be deleted.
type resource struct {
	apischema.GroupVersionResource
	list, deleteCollection bool
	// vanished resources are known, but not shown by discovery any more.
	vanished bool
}

func newResource(gvr apischema.GroupVersionResource, verbs []string) resource {
	return resource{
		GroupVersionResource: gvr,
		list:                 slices.Contains(verbs, verbList),
		deleteCollection:     slices.Contains(verbs, verbDeleteCollection),
	}
}

// sharedEvents are the same objects as the events of the core group.
var sharedEvents = apischema.GroupResource{Group: "events.k8s.io", Resource: "events"}

// expected are in every namespace, made by other controllers: the root certificate
// and the default account.
func (r resource) expected() bool {
	return r.Group == "" && (r.Resource == "configmaps" || r.Resource == "serviceaccounts")
}

// served are the resources that were served a moment ago, each once.
func (c *namespaceController) served() []resource {
	var found []resource
	all, _ := c.discovery.Resources()
	for gvr, r := range all {
		if r.Namespaced && r.Preferred && gvr.GroupResource() != sharedEvents && slices.Contains(r.Verbs, verbDelete) {
			found = append(found, newResource(gvr, r.Verbs))
		}
	}
	return found
}

// discover the resources that are served now. What is found counts also beside
// errors: unknown says which groups cannot be asked, unparsed which versions
// cannot be read.
func (c *namespaceController) discover(ctx context.Context) (found []resource, unknown, unparsed error) {
	client := discovery.ToDiscoveryInterfaceWithContext(c.client.Discovery())
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lists, unknown := discovery.ServerPreferredResourcesWithContext(ctx, client)
	if unknown == nil {
		unknown = incomplete(lists)
	}
	var invalid []string
	for _, list := range discovery.FilteredBy(discovery.ResourcePredicateFunc(holdsContent), lists) {
		gv, err := apischema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			invalid = append(invalid, err.Error())
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			found = append(found, newResource(gv.WithResource(r.Name), r.Verbs))
		}
	}
	if len(invalid) > 0 {
		slices.Sort(invalid)
		unparsed = errors.New(strings.Join(invalid, ", "))
	}
	if unknown == nil {
		// An API server that has just started shows less than it serves. What is
		// really gone answers so when it is listed.
		found = withKnown(found, c.served())
	}
	return found, unknown, unparsed
}

// holdsContent tells whether objects of a resource are in namespaces and can be deleted.
func holdsContent(_ string, r *metav1.APIResource) bool {
	return r.Namespaced && slices.Contains(r.Verbs, verbDelete)
}

// incomplete discovery does not show namespaces, of which one is being emptied.
// Clients take it for an empty core group when a server or a proxy does not know
// the path of that group yet.
func incomplete(lists []*metav1.APIResourceList) error {
	for _, list := range lists {
		isNamespaces := func(r metav1.APIResource) bool { return r.Name == namespaceResource.Resource }
		if list.GroupVersion == namespaceResource.GroupVersion().String() && slices.ContainsFunc(list.APIResources, isNamespaces) {
			return nil
		}
	}
	return errors.New("discovery shows no namespaces")
}

// withKnown adds the known resources that are not among those found in any
// version: they have vanished.
func withKnown(found, known []resource) []resource {
	seen := map[apischema.GroupResource]struct{}{}
	for _, r := range found {
		seen[r.GroupResource()] = struct{}{}
	}
	for _, r := range known {
		if _, ok := seen[r.GroupResource()]; !ok {
			r.vanished = true
			found = append(found, r)
		}
	}
	return found
}

// split off the pods.
func split(all []resource) (pods *resource, others []resource) {
	for i := range all {
		if all[i].GroupVersionResource == podResource {
			pods = &all[i]
			continue
		}
		others = append(others, all[i])
	}
	return pods, others
}

// name of the resource in an error.
func (r resource) name() string { return r.GroupResource().String() }

// failed says what was being done.
func (r resource) failed(doing string, err error) error {
	return fmt.Errorf("%s %s: %w", doing, r.name(), err)
}
