// Package discovery knows which resources the API server serves, and tells
// when that changes.
package discovery

import (
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
)

const (
	// defaultInterval is the peer's too.
	defaultInterval = 30 * time.Second
	// recheckDelay gathers the reasons to look again that come together.
	recheckDelay = time.Second
	// confirmDelay until a resource that has vanished is looked for again.
	confirmDelay = 2 * time.Second
)

// Options of a Discovery. Client is required.
type Options struct {
	// Client asks the API server. Make it of a configuration wrapped by
	// Conditional, so that an answer that has not changed is not sent again.
	Client discovery.DiscoveryInterface
	// Interval between two polls. Default: 30 s.
	Interval time.Duration
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Clock. Default: the real one.
	Clock clock.WithTicker
}

// Resource is a served resource, without subresources.
type Resource struct {
	Kind       string
	Namespaced bool
	Verbs      []string
	// Preferred is true for one version of each resource: the one that the API
	// server prefers among those that serve it.
	Preferred bool
}

// Discovery holds the set of served resources. Its methods may be called
// concurrently. It polls with two requests; servers before Kubernetes 1.27,
// which have no aggregated discovery, need one per group and version.
type Discovery struct {
	o       Options
	ready   chan struct{}
	recheck chan struct{}

	mu        sync.Mutex
	resources map[schema.GroupVersionResource]Resource
	// changed is closed and replaced when resources is replaced.
	changed chan struct{}
	err     error

	// missing are resources that the last poll did not find any more, and that
	// are held until the next one. Only Run uses it.
	missing map[schema.GroupVersionResource]Resource
}

// New makes a Discovery that knows nothing until Run has polled once.
func New(o Options) *Discovery {
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Discovery{
		o:       o,
		ready:   make(chan struct{}),
		recheck: make(chan struct{}, 1),
		changed: make(chan struct{}),
	}
}

// Ready is closed after the first successful poll. Before it nothing is known
// of any resource, which is not the same as absent.
func (d *Discovery) Ready() <-chan struct{} { return d.ready }

// Served tells whether the API server serves gvr. False before Ready.
func (d *Discovery) Served(gvr schema.GroupVersionResource) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.resources[gvr]
	return ok
}

// Resources returns all served resources, nil before Ready, and a channel that
// is closed when they are no longer these. The map must not be changed.
func (d *Discovery) Resources() (map[schema.GroupVersionResource]Resource, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resources, d.changed
}

// Changed returns a channel that is closed when the set of served resources
// changes after the call, the first successful poll included.
func (d *Discovery) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Recheck asks for a poll within about a second; requests shortly after each
// other make one.
func (d *Discovery) Recheck() {
	select {
	case d.recheck <- struct{}{}:
	default:
	}
}

// Err of the last poll; nil when it succeeded for every group.
func (d *Discovery) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
