package informers

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Options of a pool. Client and Metadata are required.
type Options struct {
	// Client lists and watches for typed informers.
	Client kubernetes.Interface
	// Metadata lists and watches for metadata informers.
	Metadata metadata.Interface
	// Linger is how long an informer without users is kept, so that a
	// controller that restarts finds its caches warm. Default: 30 s. A
	// negative value stops informers at once.
	Linger time.Duration
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Clock. Default: the real one.
	Clock clock.WithTicker
}

// Pool owns the informers of the process.
type Pool struct{}

// NewPool makes a pool. Close it to stop its informers.
func NewPool(o Options) *Pool { return &Pool{} }

// Lease opens a lease for user, the name of a controller. It must be released.
func (p *Pool) Lease(user string) *Lease { return &Lease{} }

// Status of all informers, ordered by resource.
func (p *Pool) Status() []Status { return nil }

// Close stops all informers and returns when they have ended. Leases that are
// still open get no events any more; releasing them afterwards is allowed.
func (p *Pool) Close() {}

// Lease is the set of informers that one life of a controller uses. Release
// gives them back. Its methods may be called concurrently.
type Lease struct{}

// Informer returns the typed informer of a built-in resource, full objects
// without managedFields. The informer starts when the lease is started; the
// same call again returns the same informer.
func (l *Lease) Informer(gvr schema.GroupVersionResource) (*Informer, error) { return nil, nil }

// MetadataInformer returns an informer of any resource that keeps
// metav1.PartialObjectMetadata only.
func (l *Lease) MetadataInformer(gvr schema.GroupVersionResource) (*Informer, error) { return nil, nil }

// Start starts the leased informers that do not run yet, and from now on each
// newly leased one as it is leased. WaitForSync implies it.
func (l *Lease) Start() {}

// WaitForSync returns when every leased informer has synced, every handler has
// had its initial replay, and the store of each resource in marks is at least
// as new as its resourceVersion there; or with ctx's error.
func (l *Lease) WaitForSync(ctx context.Context, marks map[schema.GroupResource]string) error { return nil }

// CatchUp returns when every leased store holds what the API server held at
// since or later, or with ctx's error. It is how a process that did not make
// the latest writes itself takes over from the one that did.
func (l *Lease) CatchUp(ctx context.Context, since time.Time) error { return nil }

// Reached tells whether the leased store of resource is at least as new as
// resourceVersion. True when the resource is not leased or the versions cannot be compared.
func (l *Lease) Reached(resource schema.GroupResource, resourceVersion string) bool { return true }

// Informers names the leased informers, ordered: "deployments.apps", and
// "deployments.apps (metadata)" for those that keep metadata only.
func (l *Lease) Informers() []string { return nil }

// Failed is closed when an event handler of the lease has panicked. No handler
// of the lease is called after that: it has missed an event, so that its owner
// has to start anew.
func (l *Lease) Failed() <-chan struct{} { return nil }

// Err says what closed Failed; nil before.
func (l *Lease) Err() error { return nil }

// Release removes the handlers and gives the informers back. It returns when no
// handler of the lease runs or will run again, so it must not be called by
// one. It may be called more than once.
func (l *Lease) Release() {}

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

// HasSynced tells whether the store holds a full list and every handler that
// was added to i has had its initial replay.
func (i *Informer) HasSynced() bool { return false }

// Release gives this one informer back before its lease ends, as Lease.Release does.
func (i *Informer) Release() {}
