package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Lease is the set of informers that one life of a controller uses. Release
// gives them back.
type Lease struct{}

// Informer returns the typed informer of a built-in resource, full objects
// without managedFields. The informer starts when the lease is started; the
// same call again returns the same informer.
func (l *Lease) Informer(gvr schema.GroupVersionResource) (*Informer, error) { return nil, nil }

// MetadataInformer returns an informer of any resource that keeps
// metav1.PartialObjectMetadata only.
func (l *Lease) MetadataInformer(gvr schema.GroupVersionResource) (*Informer, error) { return nil, nil }

// Informer is a leased informer.
type Informer struct{}

// AddIndexers adds indexes by name; one that is there already is kept. Names
// are shared by all users of the resource, so the same name must mean the same index.
func (i *Informer) AddIndexers(indexers cache.Indexers) error { return nil }

// AddEventHandler registers handler until the lease is released. Events of the
// initial replay come with isInInitialList true.
func (i *Informer) AddEventHandler(handler cache.ResourceEventHandler) error { return nil }

// Indexer is the store. Its objects must not be changed.
func (i *Informer) Indexer() cache.Indexer { return nil }

// WaitForSync returns when every leased informer has synced, every handler has
// had its initial replay, and the store of each resource in marks is at least
// as new as its resourceVersion there; or with ctx's error.
func (l *Lease) WaitForSync(ctx context.Context, marks map[schema.GroupResource]string) error { return nil }

// Reached tells whether the leased store of resource is at least as new as
// resourceVersion. True when the resource is not leased or the versions cannot be compared.
func (l *Lease) Reached(resource schema.GroupResource, resourceVersion string) bool { return true }

// Release removes the handlers and stops informers that nobody else uses. It
// returns when no handler of the lease runs or will run again.
func (l *Lease) Release() {}
