// Package harness runs controllers against a real API server in a test, as the
// daemon runs them: with the engine's informers, clients, queues and life
// cycle, and the identity and rights of their own service accounts.
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{Audit: true})) }
//
//	func TestAcceptance01_PodsAreCreated(t *testing.T) {
//		t.Parallel()
//		engine := harness.New(t, controlplane.Shared(t), harness.Options{})
//		controller := engine.Start(replicaset.Descriptor(), nil)
//		// create objects in engine.Namespace with engine.Admin …
//		harness.Eventually(t, 10*time.Second, "three pods", func(ctx context.Context) error { … })
//		controller.Restart()
//		controller.Resize(8)
//	}
//
// An Engine stands for one process. It sees only its own namespace, so that
// tests are parallel on one API server (Options.Scope for other cuts). Several
// controllers may be started on one engine, and several engines on one
// namespace, such as a leader and its successor. Engine.Proxy records what the
// controllers ask for, holds back watches, and breaks connections; Disturb restarts and
// resizes a controller at random moments. Everything ends with the test.
package harness

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
	config "github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// daemonUser is the identity of the daemon, whose rights the API server bootstraps.
const daemonUser = "system:kube-controller-manager"

// Options of an Engine. The zero value leads and sees one new namespace.
type Options struct {
	// Scope is what controllers see. Default: a new namespace.
	Scope apiproxy.Scope
	// WholeCluster ignores Scope: controllers see everything, as in the
	// daemon. For tests with a control plane of their own.
	WholeCluster bool
	// Configure changes the default configuration before anything starts. May be nil.
	Configure func(*config.ControllerManagerConfiguration)
	// Standby does not lead before Lead is called: controllers get their
	// caches ready and wait, and writes are refused.
	Standby bool
	// DiscoveryInterval between two polls of the served resources. Default: 0, for
	// controllers that do not ask which resources are served.
	DiscoveryInterval time.Duration
	// Clock of the controllers. Default: the real one.
	Clock clock.WithTicker
	// Log is where the log goes. Default: the test's log, which is shown when it fails.
	Log io.Writer
}

// Engine is what one controller-manager process gives its controllers.
type Engine struct {
	// Namespace that controllers see, if Scope has one.
	Namespace string
	// Admin may do everything, does not go through the proxy, and is not recorded.
	Admin kubernetes.Interface
	// Proxy is between the engine and the API server.
	Proxy *apiproxy.Proxy

	t       testing.TB
	cp      *controlplane.ControlPlane
	config  *config.ControllerManagerConfiguration
	logger  *slog.Logger
	clock   clock.WithTicker
	fence   *client.Fence
	builder *client.Builder
	pool    *informers.Pool
	events  *telemetry.Events
	// discovery polls until endDiscovery is called; nil unless asked for.
	discovery    *discovery.Discovery
	endDiscovery func()

	mu        sync.Mutex
	instances []*Instance
	// lead is closed while the engine leads.
	lead    chan struct{}
	leading bool
	closed  bool
}

// New makes an engine, which ends with the test.
func New(t testing.TB, cp *controlplane.ControlPlane, o Options) *Engine {
	t.Helper()
	if !o.WholeCluster && o.Scope == (apiproxy.Scope{}) {
		o.Scope.Namespace = cp.Namespace(t)
	}
	if o.Log == nil {
		o.Log = t.Output()
	}
	e := &Engine{
		Namespace: o.Scope.Namespace,
		Admin:     Client(t, cp.AdminConfig()),
		t:         t,
		cp:        cp,
		config:    config.NewScheme().Default(),
		logger:    slog.New(slog.NewTextHandler(o.Log, nil)),
		clock:     o.Clock,
		fence:     client.NewFence(clock.RealClock{}),
		lead:      make(chan struct{}),
	}
	if o.Configure != nil {
		o.Configure(e.config)
	}
	scope := o.Scope
	if o.WholeCluster {
		scope = apiproxy.Scope{}
	}
	e.connect(scope)
	e.discover(o.DiscoveryInterval)
	t.Cleanup(e.close)
	if !o.Standby {
		e.Lead()
	}
	return e
}

// connect makes everything that talks to the API server.
func (e *Engine) connect(scope apiproxy.Scope) {
	e.t.Helper()
	var err error
	if e.Proxy, err = apiproxy.Start(e.cp, scope); err != nil {
		e.t.Fatal(err)
	}
	kubeconfig, err := e.Proxy.Kubeconfig(e.t.TempDir(), daemonUser)
	if err != nil {
		e.t.Fatal(err)
	}
	cluster := e.config.Cluster
	e.builder, err = client.New(client.Options{
		Kubeconfig:                   kubeconfig,
		UseServiceAccountCredentials: cluster.UseServiceAccountCredentials,
		ContentType:                  cluster.Client.ContentType,
		QPS:                          cluster.Client.QPS,
		Burst:                        cluster.Client.Burst,
		Fence:                        e.fence,
		Logger:                       e.logger,
	})
	if err != nil {
		e.t.Fatalf("make clients: %v", err)
	}
	root := e.builder.Root("informers")
	meta, err := metadata.NewForConfig(root)
	if err != nil {
		e.t.Fatalf("make metadata client: %v", err)
	}
	e.pool = informers.NewPool(informers.Options{Client: Client(e.t, root), Metadata: meta, Logger: e.logger})
	e.events = telemetry.NewEvents(Client(e.t, e.builder.Unfenced("events")), e.logger)
}

// discover polls the served resources from now on, and returns when they are known.
func (e *Engine) discover(interval time.Duration) {
	e.t.Helper()
	e.endDiscovery = func() {}
	if interval == 0 {
		return
	}
	config := e.builder.Root("discovery")
	config.Wrap(discovery.Conditional)
	e.discovery = discovery.New(discovery.Options{
		Client: Client(e.t, config).Discovery(), Interval: interval, Logger: e.logger,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	polling.Go(func() { e.discovery.Run(ctx) })
	e.endDiscovery = func() {
		cancel()
		polling.Wait()
	}
	select {
	case <-e.discovery.Ready():
	case <-time.After(readyWithin):
		e.t.Errorf("the served resources are not known after %s: %v", readyWithin, e.discovery.Err())
	}
}

// Client makes a client or fails the test.
func Client(t testing.TB, c *rest.Config) kubernetes.Interface {
	t.Helper()
	made, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	return made
}

// Lead lets writes pass and controllers reconcile.
func (e *Engine) Lead() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leading {
		e.leading = true
		e.fence.OpenAlways()
		close(e.lead)
	}
}

// Lose gives leadership up: writes are refused from now on, and controllers
// are cancelled. It returns when they have ended; they can be started again.
func (e *Engine) Lose() {
	e.t.Helper()
	e.mu.Lock()
	if e.leading {
		e.leading = false
		e.fence.Shut()
		e.lead = make(chan struct{})
	}
	instances := slices.Clone(e.instances)
	e.mu.Unlock()
	for _, i := range instances {
		i.Abort()
	}
}

// Crash ends the engine as a killed process ends, wherever its controllers
// are: connections break, nothing is finished. It cannot be used afterwards;
// make another one on its namespace:
//
//	successor := harness.New(t, cp, harness.Options{Scope: apiproxy.Scope{Namespace: engine.Namespace}})
func (e *Engine) Crash() {
	e.t.Helper()
	e.Proxy.Cut()
	e.Lose()
	e.end(0)
}

func (e *Engine) close() { e.end(5 * time.Second) }

// end gives the last events a time to be sent.
func (e *Engine) end(flush time.Duration) {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	instances := slices.Clone(e.instances)
	e.mu.Unlock()
	if closed {
		return
	}
	if e.t.Failed() {
		e.describe(instances)
	}
	for _, i := range slices.Backward(instances) {
		i.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), flush)
	defer cancel()
	e.events.Shutdown(ctx)
	e.endDiscovery()
	e.pool.Close()
	e.builder.Close()
	if err := e.Proxy.Close(); err != nil {
		e.t.Error(err)
	}
}

// Writes returns the recorded writes of a resource, subresources included, in
// their order. They are those of controllers alone: the test's own client and
// events, tokens and leases do not count.
func (e *Engine) Writes(resource schema.GroupResource) []apiproxy.Request {
	return e.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Write() && r.Resource == resource && r.Subresource != "token"
	})
}
