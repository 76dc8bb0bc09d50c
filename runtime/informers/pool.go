package informers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

// defaultLinger is longer than any restart of a controller takes.
const defaultLinger = 30 * time.Second

var errPoolClosed = errors.New("informer pool is closed")

// Options of a pool. Client and Metadata are required.
type Options struct {
	// Client lists and watches for typed informers. It must be a real one:
	// informers use its REST client, which a fake clientset has not.
	Client kubernetes.Interface
	// Metadata lists and watches for metadata informers, and reads how new a
	// resource is for Lease.CatchUp.
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
type Pool struct {
	o      Options
	outage outage
	// context of all informers, ended by Close.
	context context.Context
	cancel  context.CancelFunc
	// running counts all goroutines of the pool.
	running sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	informers map[key]*shared
}

// NewPool makes a pool. Close it to stop its informers.
func NewPool(o Options) *Pool {
	if o.Linger == 0 {
		o.Linger = defaultLinger
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	p := &Pool{o: o, informers: map[key]*shared{}}
	p.outage.logger, p.outage.clock = o.Logger, o.Clock
	p.context, p.cancel = context.WithCancel(context.Background())
	return p
}

// Lease opens a lease for user, the name of a controller. It must be released.
func (p *Pool) Lease(user string) *Lease {
	return &Lease{
		pool:   p,
		user:   user,
		held:   map[key]*Informer{},
		failed: make(chan struct{}),
	}
}

// Status of all informers, ordered by resource.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	all := make([]*shared, 0, len(p.informers))
	users := make(map[*shared][]string, len(p.informers))
	monitored := make(map[*shared]bool, len(p.informers))
	for _, s := range p.informers {
		all = append(all, s)
		names := make([]string, 0, len(s.users))
		monitored[s] = len(s.users) > 0
		for i := range s.users {
			names = append(names, i.lease.user)
			monitored[s] = monitored[s] && i.monitor.Load()
		}
		slices.Sort(names)
		users[s] = slices.Compact(names)
	}
	p.mu.Unlock()

	slices.SortFunc(all, func(a, b *shared) int { return cmp.Compare(a.key.String(), b.key.String()) })
	result := make([]Status, 0, len(all))
	for _, s := range all {
		status := s.status()
		status.Users, status.Monitored = users[s], monitored[s]
		result = append(result, status)
	}
	return result
}

// Close stops all informers and returns when they have ended. Leases that are
// still open get no events any more; releasing them afterwards is allowed.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
}

// present is the key of the informer of gvr that monitors share: the typed one
// if somebody needs it anyway, or nobody has any but it lingers.
func (p *Pool) present(gvr schema.GroupVersionResource) key {
	p.mu.Lock()
	defer p.mu.Unlock()
	typed, metadata := key{gvr: gvr}, key{gvr: gvr, metadata: true}
	t, hasTyped := p.informers[typed]
	_, hasMetadata := p.informers[metadata]
	if hasTyped && (len(t.users) > 0 || !hasMetadata) {
		return typed
	}
	return metadata
}

// acquire makes i a user of the informer of k.
func (p *Pool) acquire(k key, i *Informer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("lease informer of %s: %w", k, errPoolClosed)
	}
	s, ok := p.informers[k]
	if !ok {
		var err error
		if s, err = p.newShared(k); err != nil {
			return err
		}
		p.informers[k] = s
	}
	s.reuse()
	s.users[i] = struct{}{}
	i.shared = s
	return nil
}

// start runs s unless it runs already.
func (p *Pool) start(s *shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.started || p.closed {
		return
	}
	s.started = true
	p.running.Go(s.run)
}

// release ends i's use of its informer.
func (p *Pool) release(i *Informer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := i.shared
	delete(s.users, i)
	switch {
	case len(s.users) > 0 || p.closed:
	case !s.started || p.o.Linger < 0:
		p.remove(s)
	default:
		s.linger()
	}
}

// remove stops s. The caller holds p.mu.
func (p *Pool) remove(s *shared) {
	delete(p.informers, s.key)
	s.stop()
}
