package monitors

import (
	"slices"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
)

// defining are the resources whose objects make the API server serve others.
var defining = []apischema.GroupResource{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Resource: "apiservices"},
}

// Defines tells whether the objects of a resource make the API server serve
// others. A set that monitors it finds new resources within seconds.
func Defines(resource apischema.GroupResource) bool { return slices.Contains(defining, resource) }

// definitions has discovery look again when a definition has changed.
type definitions struct{ discovery *discovery.Discovery }

var _ cache.ResourceEventHandler = definitions{}

// OnAdd implements cache.ResourceEventHandler.
func (d definitions) OnAdd(_ any, isInInitialList bool) {
	if !isInInitialList {
		d.discovery.Recheck()
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (d definitions) OnUpdate(any, any) { d.discovery.Recheck() }

// OnDelete implements cache.ResourceEventHandler.
func (d definitions) OnDelete(any) { d.discovery.Recheck() }
