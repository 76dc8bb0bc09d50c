package informers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// shared is one informer with all its users.
type shared struct {
	pool     *Pool
	key      key
	source   *source
	informer cache.SharedIndexInformer
	// context ends when nobody needs the informer any more.
	context context.Context
	stop    context.CancelFunc

	// users, started and reused are guarded by the pool's mutex.
	users   map[*Informer]struct{}
	started bool
	// reused is closed by the next user, while the informer lingers.
	reused chan struct{}

	mu         sync.Mutex
	indexNames map[string]struct{}

	// catchUp is held by the one that brings the store up to date.
	catchUp chan struct{}
	// caughtUp is a time at which the API server held nothing newer than the
	// store does by now. Guarded by catchUp.
	caughtUp time.Time
}

func (p *Pool) newShared(k key) (*shared, error) {
	requests, err := p.requests(k)
	if err != nil {
		return nil, err
	}
	s := &shared{
		pool:       p,
		key:        k,
		users:      map[*Informer]struct{}{},
		indexNames: map[string]struct{}{cache.NamespaceIndex: {}},
		catchUp:    make(chan struct{}, 1),
	}
	s.context, s.stop = context.WithCancel(p.context)
	s.source = newSource(p, k, requests)
	s.informer = cache.NewSharedIndexInformerWithOptions(s.source.listWatch(p.client(k)), requests.example(),
		cache.SharedIndexInformerOptions{
			ObjectDescription: k.String(),
			Indexers:          cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
	err = errors.Join(
		s.informer.SetTransform(stripManagedFields),
		s.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if ctx.Err() == nil {
				s.source.health.failed(err)
			}
		}),
	)
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("make informer of %s: %w", k, err)
	}
	return s, nil
}

// stripManagedFields saves what is often the larger half of an object, and
// what no controller reads.
func stripManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// run until nobody needs the informer.
func (s *shared) run() {
	defer s.stop()
	s.informer.RunWithContext(s.context)
}

// reuse keeps a lingering informer. The caller holds the pool's mutex.
func (s *shared) reuse() {
	if s.reused != nil {
		close(s.reused)
		s.reused = nil
	}
}

// linger stops the informer unless it is reused in time. The caller holds the
// pool's mutex.
func (s *shared) linger() {
	reused := make(chan struct{})
	s.reused = reused
	s.pool.running.Go(func() {
		timer := s.pool.o.Clock.NewTimer(s.pool.o.Linger)
		defer timer.Stop()
		select {
		case <-timer.C():
			s.pool.mu.Lock()
			defer s.pool.mu.Unlock()
			if s.reused == reused {
				s.pool.remove(s)
			}
		case <-reused:
		case <-s.context.Done():
		}
	})
}

// addIndexers adds those whose names are new.
func (s *shared) addIndexers(indexers cache.Indexers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := cache.Indexers{}
	for name, index := range indexers {
		if _, ok := s.indexNames[name]; !ok {
			added[name] = index
		}
	}
	if len(added) == 0 {
		return nil
	}
	if err := s.informer.AddIndexers(added); err != nil {
		return fmt.Errorf("add indexes to informer of %s: %w", s.key, err)
	}
	for name := range added {
		s.indexNames[name] = struct{}{}
	}
	return nil
}

// version of the store.
func (s *shared) version() string {
	return s.informer.GetIndexer().LastStoreSyncResourceVersion()
}

func (s *shared) status() Status {
	return Status{
		Resource: s.key.name(), GroupVersionResource: s.key.gvr,
		Metadata:        s.key.metadata,
		Selection:       s.key.selection.String(),
		Objects:         len(s.informer.GetIndexer().ListKeys()),
		Synced:          s.informer.HasSynced(),
		ResourceVersion: s.version(),
		Lists:           s.source.lists.Load(),
		Watches:         s.source.watches.Load(),
		LastError:       s.source.health.lastError(),
	}
}
