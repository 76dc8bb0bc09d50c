package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	lists, unknown := discovery.ServerPreferredNamespacedResourcesWithContext(ctx, client)
	var invalid []string
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{verbDelete}}, lists) {
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
	if len(found) == 0 && unknown == nil {
		// An empty answer is no evidence that nothing is left.
		unknown = errors.New("the API server serves no resources that can be deleted")
	}
	return found, unknown, unparsed
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
