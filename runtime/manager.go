// Package runtime is the engine of a controller manager: it composes the
// packages below it into one daemon that follows its configuration file.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/election"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/server"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// component is the name under which the process stands for its lease, records
// events and reports metrics: the name that kube-controller-manager uses, so
// that dashboards and alerts go on working.
const component = "kube-controller-manager"

// What is done after the controllers have stopped. Each has a time of its own:
// events that cannot be sent must not keep the lease from a successor.
const (
	lastEventsTimeout = 2 * time.Second
	releaseTimeout    = 5 * time.Second
)

// Options of a Manager. Config.Scheme is required.
type Options struct {
	// Config says where the configuration comes from. Its Logger is set by New.
	Config config.Options
	// Descriptors are the controllers of this build.
	Descriptors []controller.Descriptor
	// LogWriter is where the log goes. Default: os.Stderr.
	LogWriter io.Writer
	// LogIsTerminal decides what logging.format auto means.
	LogIsTerminal bool
	// LeaveProcessLogs leaves klog and slog's default logger as they are, for a
	// program that has more in it than a Manager. By default they go into the log.
	LeaveProcessLogs bool
	// Version of the binary. Default: unknown.
	Version string
	// Identity in the lease. Default: HOSTNAME_UUID.
	Identity string
}

// Manager is the whole daemon.
type Manager struct {
	o       Options
	clock   clock.RealClock
	log     *slog.Logger
	started time.Time

	logging    *telemetry.Logging
	metrics    *telemetry.Metrics
	source     *config.Source
	fence      *client.Fence
	clients    *client.Builder
	discovery  *discovery.Discovery
	pool       *informers.Pool
	events     *telemetry.Events
	elector    *election.Elector
	supervisor *supervisor.Supervisor
	server     *server.Server

	engineEvents *engineEvents
	panics       *panicCounter
	past         *pastLives
	made         *madeLog
	reloads      *reloadLog
	exit         chan error
	first        *config.Snapshot

	credentialFiles credentialFiles

	mu sync.Mutex
	// status is replaced, never changed.
	status server.ConfigStatus
	// ledSince is when this process last began to lead.
	ledSince time.Time
}

// New loads the configuration and makes the parts. It sends nothing to the API
// server. A configuration that cannot be used is a schema.Errors.
func New(o Options) (*Manager, error) {
	if o.LogWriter == nil {
		o.LogWriter = os.Stderr
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("make the identity for the lease: %w", err)
		}
		o.Identity = host + "_" + uuid.NewString()
	}
	logging := telemetry.NewLogging(o.LogWriter, o.LogIsTerminal)
	o.Config.Logger = logging.Logger("config")
	m := &Manager{
		o:       o,
		clock:   clock.RealClock{},
		log:     logging.Logger("manager"),
		started: time.Now(),
		logging: logging,
		metrics: telemetry.NewMetrics(),
		source:  config.NewSource(o.Config),
		panics:  newPanicCounter(),
		past:    newPastLives(),
		made:    newMadeLog(),
		reloads: newReloadLog(time.Now),
		exit:    make(chan error, 1),
	}
	snapshot, errs := m.source.Load()
	if len(errs) > 0 {
		return nil, errs
	}
	m.first = snapshot
	if err := m.logging.Apply(snapshot.Config.Logging); err != nil {
		return nil, fmt.Errorf("apply logging: %w", err)
	}
	if err := m.makeParts(snapshot); err != nil {
		return nil, err
	}
	return m, nil
}

// makeParts makes everything that needs a configuration.
func (m *Manager) makeParts(snapshot *config.Snapshot) error {
	cfg := snapshot.Config
	m.fence = client.NewFence(m.clock)
	var err error
	m.clients, err = client.New(client.Options{
		Kubeconfig:                   cfg.Cluster.Kubeconfig,
		UseServiceAccountCredentials: cfg.Cluster.UseServiceAccountCredentials,
		ContentType:                  cfg.Cluster.Client.ContentType,
		QPS:                          cfg.Cluster.Client.QPS,
		Burst:                        cfg.Cluster.Client.Burst,
		Fence:                        m.fence,
		Logger:                       m.logging.Logger("client"),
	})
	if err != nil {
		return fmt.Errorf("make clients: %w", err)
	}
	caches, err := kubernetes.NewForConfig(m.clients.Root("shared-informers"))
	if err != nil {
		return fmt.Errorf("make the informers' client: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(m.clients.Root("metadata-informers"))
	if err != nil {
		return fmt.Errorf("make the metadata informers' client: %w", err)
	}
	m.pool = informers.NewPool(informers.Options{
		Client:   caches,
		Metadata: metadataClient,
		Logger:   m.logging.Logger("informers"),
		Clock:    m.clock,
	})
	discovering := m.clients.Root("controller-discovery")
	discovering.Wrap(discovery.Conditional)
	discoverer, err := kubernetes.NewForConfig(discovering)
	if err != nil {
		return fmt.Errorf("make the discovery client: %w", err)
	}
	m.discovery = discovery.New(discovery.Options{
		Client: discoverer.Discovery(),
		Logger: m.logging.Logger("discovery"),
		Clock:  m.clock,
	})
	recording, err := kubernetes.NewForConfig(rest.AddUserAgent(m.clients.Root(component), "events"))
	if err != nil {
		return fmt.Errorf("make the events' client: %w", err)
	}
	m.events = telemetry.NewEvents(recording, m.logging.Logger("events"))
	m.engineEvents = newEngineEvents(m.events.Recorder(component), cfg.LeaderElection)
	if err := m.makeElector(snapshot); err != nil {
		return err
	}
	m.supervisor = supervisor.New(supervisor.Options{
		Descriptors:   m.o.Descriptors,
		Known:         m.o.Config.Scheme.SectionTypes(),
		Factory:       m.newLife,
		Unavailable:   m.unavailable,
		OnStateChange: m.stateChanged,
		Logger:        m.logging.Logger("supervisor"),
		Clock:         m.clock,
	})
	return m.makeServer(snapshot)
}

func (m *Manager) makeElector(snapshot *config.Snapshot) error {
	leases, err := kubernetes.NewForConfig(m.clients.Unfenced("leader-election"))
	if err != nil {
		return fmt.Errorf("make the leader election's client: %w", err)
	}
	m.elector, err = election.New(election.Options{
		Leases:   leases.CoordinationV1(),
		Config:   snapshot.Config.LeaderElection,
		Identity: m.o.Identity,
		Fence:    m.fence,
		Events:   m.events.Recorder(component),
		Logger:   m.logging.Logger("election"),
		OnLead:   m.lead,
		OnLost:   m.lost,
		Written:  m.clients.Written,
	})
	if err != nil {
		return fmt.Errorf("prepare the leader election: %w", err)
	}
	return nil
}

func (m *Manager) makeServer(snapshot *config.Snapshot) error {
	reviews, err := kubernetes.NewForConfig(m.clients.Unfenced(component))
	if err != nil {
		return fmt.Errorf("make the server's client: %w", err)
	}
	m.server, err = server.New(server.Options{
		Config:  snapshot.Config.Server,
		Sources: m.sources(),
		Client:  reviews,
		Logger:  m.logging.Logger("server"),
		Version: m.o.Version,
		Started: m.started,
	})
	if err != nil {
		return fmt.Errorf("prepare the server: %w", err)
	}
	m.metrics.SetSources(m.metricSources())
	return nil
}

// Run runs the daemon until ctx ends: it stops the controllers, gives the lease
// back and returns nil. It returns an error when the process must end for
// another reason. To be called once.
func (m *Manager) Run(ctx context.Context) error {
	if !m.o.LeaveProcessLogs {
		m.logging.RouteKlog()
	}
	m.log.Info("starting", "version", m.o.Version, "identity", m.o.Identity)

	current := m.apply(m.first)
	// The parts end in this order: controllers, lease, everything else.
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	controllers, endControllers := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { m.run(m.source.Run(background), "follow the configuration file") })
	parts.Go(func() { m.run(m.server.Run(background), "serve") })
	parts.Go(func() { m.discovery.Run(background) })
	parts.Go(func() { m.followReloads(background, current) })
	parts.Go(func() { m.followDiscovery(background) })
	parts.Go(func() { m.followCredentials(background) })
	var elector sync.WaitGroup
	electorCtx, endElector := context.WithCancel(context.WithoutCancel(ctx))
	elector.Go(func() { m.run(m.elector.Run(electorCtx), "stand for the lease") })

	var exitErr error
	var supervised sync.WaitGroup
	supervisorErr := make(chan error, 1)
	supervised.Go(func() { supervisorErr <- m.supervisor.Run(controllers) })

	select {
	case <-ctx.Done():
		m.log.Info("stopping the controllers")
	case exitErr = <-m.exit:
		m.log.Error("ending", "err", exitErr)
	}
	endControllers()
	stuck := <-supervisorErr
	supervised.Wait()

	// Last of all, an event may say which controller is stuck.
	lastEvents, endEvents := context.WithTimeout(context.WithoutCancel(ctx), lastEventsTimeout)
	m.events.Shutdown(lastEvents)
	endEvents()
	if stuck == nil { // otherwise it may still write, and the lease has to run out
		m.release(context.WithoutCancel(ctx))
	}
	endElector()
	m.fence.Shut()
	elector.Wait()
	endBackground()
	m.pool.Close()
	parts.Wait()
	m.clients.Close()
	m.log.Info("ended")
	return errors.Join(exitErr, stuck)
}

// release gives the lease back.
func (m *Manager) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := m.elector.Release(ctx); err != nil {
		m.log.Error("the lease was not released, a successor waits until it has run out", "err", err)
	}
}

// Reload looks at the configuration file now, as on SIGHUP.
func (m *Manager) Reload() { m.source.Trigger() }

// run ends the process when a part has failed.
func (m *Manager) run(err error, what string) {
	if err != nil {
		m.fail(fmt.Errorf("%s: %w", what, err))
	}
}

// fail ends the process; the first reason counts.
func (m *Manager) fail(err error) {
	select {
	case m.exit <- err:
	default:
	}
}
