package informers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxCatchUps of one lease at the same time; each makes a LIST request.
const maxCatchUps = 16

var (
	errLeaseReleased = errors.New("informer lease is released")
	// errInformerReleased ends the wait for one informer of a lease, which
	// then need not be waited for any more.
	errInformerReleased = errors.New("informer is released")
	// errUnknownFreshness of a monitor whose resource cannot be read.
	errUnknownFreshness = errors.New("cannot tell how new the resource is")
)

// Lease is the set of informers that one life of a controller uses. Release
// gives them back. Its methods may be called concurrently.
type Lease struct {
	pool *Pool
	user string

	release sync.Once

	mu       sync.Mutex
	started  bool
	released bool
	held     map[key]*Informer
	failed   chan struct{}
	err      error
}

// Informer returns the typed informer of a built-in resource, full objects
// without managedFields. The informer starts when the lease is started; the
// same call again returns the same informer.
func (l *Lease) Informer(gvr schema.GroupVersionResource) (*Informer, error) {
	return l.lease(key{gvr: gvr})
}

// MetadataInformer returns an informer of any resource that keeps
// metav1.PartialObjectMetadata only, without managedFields. It may be leased
// before the resource is served: it then begins when it is.
func (l *Lease) MetadataInformer(gvr schema.GroupVersionResource) (*Informer, error) {
	return l.lease(key{gvr: gvr, metadata: true})
}

// Monitor returns an informer for a user that looks at whatever is served: the
// typed one of gvr if the process has it already, otherwise one of metadata. Its
// objects are metav1.Object. WaitForSync and CatchUp wait for neither of them while
// it cannot list or watch, nor does the health of the process depend on it.
func (l *Lease) Monitor(gvr schema.GroupVersionResource) (*Informer, error) {
	i, err := l.lease(l.pool.present(gvr))
	if err != nil {
		return nil, err
	}
	i.monitor.Store(true)
	return i, nil
}

func (l *Lease) lease(k key) (*Informer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return nil, fmt.Errorf("lease informer of %s for %s: %w", k, l.user, errLeaseReleased)
	}
	if l.err != nil {
		return nil, fmt.Errorf("lease informer of %s for %s: %w", k, l.user, l.err)
	}
	if i, ok := l.held[k]; ok {
		return i, nil
	}
	i := &Informer{lease: l, ended: make(chan struct{})}
	if err := l.pool.acquire(k, i); err != nil {
		return nil, err
	}
	l.held[k] = i
	if l.started {
		l.pool.start(i.shared)
	}
	return i, nil
}

// Start starts the leased informers that do not run yet, and from now on each
// newly leased one as it is leased. WaitForSync and CatchUp imply it.
func (l *Lease) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return
	}
	l.started = true
	for _, i := range l.held {
		l.pool.start(i.shared)
	}
}

// WaitForSync returns when every leased informer has synced, every handler has
// had its initial replay, and the store of each resource in marks is at least
// as new as its resourceVersion there; or with ctx's error, or that of Err. A
// mark is best the version of a write to its resource, whose event brings the
// store there; for another one CatchUp is done after two seconds.
func (l *Lease) WaitForSync(ctx context.Context, marks map[schema.GroupResource]string) error {
	l.Start()
	for _, i := range l.informers() {
		if i.unusable() {
			continue
		}
		err := i.waitForSync(ctx)
		if mark, ok := marks[i.shared.key.gvr.GroupResource()]; ok && err == nil {
			err = i.waitForVersion(ctx, mark)
		}
		if err != nil && !errors.Is(err, errInformerReleased) {
			return err
		}
	}
	return l.unusable()
}

// CatchUp returns when every leased store holds what the API server held at
// since or later, or with ctx's error. It is how a process that did not make
// the latest writes itself takes over from the one that did. Leases that share
// informers share the work when they pass the same since.
func (l *Lease) CatchUp(ctx context.Context, since time.Time) error {
	l.Start()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxCatchUps)
	for _, i := range l.informers() {
		if i.unusable() {
			continue
		}
		group.Go(func() error {
			if err := i.tolerate(i.catchUp(ctx, since)); err != nil && !errors.Is(err, errInformerReleased) {
				return err
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return l.unusable()
}

// Reached tells whether the leased store of resource is at least as new as
// resourceVersion. True when the resource is not leased or the versions cannot be compared.
func (l *Lease) Reached(resource schema.GroupResource, resourceVersion string) bool {
	for _, s := range l.storesOf(resource) {
		if !reached(s.version(), resourceVersion) {
			return false
		}
	}
	return true
}

// storesOf resource, typed and metadata. The lock of a lease is never held when
// that of a store is taken: index functions do it the other way round.
func (l *Lease) storesOf(resource schema.GroupResource) []*shared {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stores []*shared
	for k, i := range l.held {
		if k.gvr.GroupResource() == resource {
			stores = append(stores, i.shared)
		}
	}
	return stores
}

// Informers names the leased informers, ordered: "deployments.v1.apps", and
// "deployments.v1.apps (metadata)" for those that keep metadata only.
func (l *Lease) Informers() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.held))
	for k := range l.held {
		names = append(names, k.String())
	}
	slices.Sort(names)
	return names
}

// Failed is closed when an event handler or index function of the lease has
// panicked. No handler of the lease is called after that: it has missed an
// event, so that its owner has to start anew.
func (l *Lease) Failed() <-chan struct{} { return l.failed }

// Err says what closed Failed; nil before.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Release removes the handlers and gives the informers back. It returns when no
// handler of the lease runs or will run again, so it must not be called by
// one. It may be called more than once.
func (l *Lease) Release() {
	l.release.Do(func() {
		l.mu.Lock()
		l.released = true
		held := l.held
		l.held = map[key]*Informer{}
		l.mu.Unlock()
		// All fall silent before the first is waited for.
		for _, i := range held {
			i.silent.Store(true)
		}
		for _, i := range held {
			i.Release()
		}
	})
}

// forget i, which is being released.
func (l *Lease) forget(i *Informer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[i.shared.key] == i {
		delete(l.held, i.shared.key)
	}
}

// fail ends the events of the lease.
func (l *Lease) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	for _, i := range l.held {
		i.silent.Store(true)
	}
	close(l.failed)
}

// informers that are held now, ordered.
func (l *Lease) informers() []*Informer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.held), func(a, b *Informer) int {
		return cmp.Compare(a.shared.key.String(), b.shared.key.String())
	})
}

// unusable says why the lease can no longer be used; nil when it can.
func (l *Lease) unusable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return errLeaseReleased
	}
	return l.err
}

// recoverPanic of a function that the user gave. It is to be deferred itself.
func (l *Lease) recoverPanic(what string) {
	r := recover()
	if r == nil {
		return
	}
	l.pool.o.Logger.Error("controller panicked", "controller", l.user, "in", what, "panic", r, "stack", string(debug.Stack()))
	l.fail(fmt.Errorf("%s panicked: %v", what, r))
}
