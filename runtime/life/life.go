// Package life runs one instance of a controller: it gives the controller its
// world, waits for its caches, lets it reconcile, and takes everything back.
package life

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// outgrownMin keys more than twice those of the start are no reason yet to make
// a standby anew.
const outgrownMin = 1000

// Options of a life. Descriptor, Section, Config, Clients, Marks, Pool, Events
// and Metrics are required.
type Options struct {
	Descriptor controller.Descriptor
	// Section is the controller's part of Config.
	Section schema.Section
	Config  *schema.ControllerManagerConfiguration
	// Clients have the controller's identity, and record its writes in Marks,
	// which outlives the life.
	Clients client.Clients
	Marks   *client.Marks
	// Memory outlives the life too. Default: nil, nothing is remembered.
	Memory *controller.Memory
	// Pool lends the informers.
	Pool *informers.Pool
	// Discovery knows the served resources. May be nil for controllers that do not ask it.
	Discovery *discovery.Discovery
	Events    record.EventRecorder
	// Metrics is the controller's own registry, which outlives the life.
	Metrics prometheus.Registerer
	// QueueMetrics and DeleteQueueMetrics serve the workqueue_* metrics. May be nil.
	QueueMetrics       workqueue.MetricsProvider
	DeleteQueueMetrics func(queue string)
	// CatchUp returns when the leased stores hold what an earlier leader
	// wrote. It is called once this process leads. May be nil.
	CatchUp func(ctx context.Context, lease *informers.Lease) error
	// ServerCA is Env.ServerCA. Default: no bundle, for ever.
	ServerCA func() (bundle []byte, changed <-chan struct{})
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Clock. Default: the real one.
	Clock clock.WithTicker
}

// Life is one instance of a controller. It implements supervisor.Life.
type Life struct {
	o          Options
	name       string
	lease      *informers.Lease
	group      *work.Group
	controller *controller.Controller
	ready      chan struct{}
	workers    atomic.Int64
	failed     chan error
	// keys that waited when the caches had synced, while the life stands by; else 0.
	keys atomic.Int64
}

// New makes the controller without running it. Run must be called, and gives
// back what New took.
func New(o Options) (*Life, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.ServerCA == nil {
		o.ServerCA = func() ([]byte, <-chan struct{}) { return nil, nil }
	}
	name := o.Descriptor.Name()
	l := &Life{
		o:      o,
		name:   name,
		lease:  o.Pool.Lease(name),
		ready:  make(chan struct{}),
		failed: make(chan error, 1),
	}
	l.group = work.NewGroup(work.GroupOptions{
		Name:            name,
		Logger:          o.Logger,
		Clock:           o.Clock,
		MetricsProvider: o.QueueMetrics,
		DeleteMetrics:   o.DeleteQueueMetrics,
		Marks:           marksOf,
		Reached:         l.lease.Reached,
		Unfinished:      controller.Recall(o.Memory, func() *work.Unfinished { return &work.Unfinished{} }),
		Refused:         func(err error) bool { return errors.Is(err, client.ErrFenced) },
	})
	l.workers.Store(int64(o.Section.Base().Workers))
	if err := l.construct(); err != nil {
		l.takeBack(context.Background())
		return nil, fmt.Errorf("make controller %s: %w", name, err)
	}
	return l, nil
}

// construct calls the descriptor's New, whose panic is an error.
func (l *Life) construct() (err error) {
	defer recoverTo(&err)
	ctl, err := l.o.Descriptor.New(controller.Env{
		Name:           l.name,
		Logger:         l.o.Logger,
		Clock:          l.o.Clock,
		Client:         l.o.Clients.Kubernetes,
		Metadata:       l.o.Clients.Metadata,
		Dynamic:        l.o.Clients.Dynamic,
		Informers:      l.lease,
		Discovery:      l.o.Discovery,
		Work:           l.group,
		Events:         l.o.Events,
		Memory:         l.o.Memory,
		Metrics:        l.o.Metrics,
		FeatureEnabled: func(gate string) bool { return schema.FeatureEnabled(l.o.Config, gate) },
		Cluster:        l.o.Config.Cluster,
		ServerCA:       l.o.ServerCA,
	}, l.o.Section)
	if err != nil {
		return err
	}
	if ctl == nil {
		ctl = &controller.Controller{}
	}
	l.controller = ctl
	return nil
}

// marksOf makes a context whose writes are recorded, for work.GroupOptions.
func marksOf(ctx context.Context) (context.Context, func() map[apischema.GroupResource]string) {
	marks := client.NewMarks()
	return client.WithMarks(ctx, marks), marks.Snapshot
}

// Run implements supervisor.Life.
func (l *Life) Run(ctx, workCtx context.Context, lead <-chan struct{}) error {
	err := l.run(ctx, workCtx, lead)
	l.takeBack(workCtx)
	return err
}

// run returns when ctx ends or the controller fails; reconciles may still be under way.
func (l *Life) run(ctx, workCtx context.Context, lead <-chan struct{}) error {
	ready, ended := l.untilFailure(ctx)
	defer ended()
	if err := l.awaitCaches(ready, lead); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if failure := l.failure(); failure != nil {
			return failure
		}
		return err
	}
	l.group.Start(workCtx, int(l.workers.Load()))
	l.group.Resize(int(l.workers.Load())) // a Resize may have come between
	close(l.ready)

	runnersCtx, stopRunners := context.WithCancel(ready)
	var runners sync.WaitGroup
	defer runners.Wait()
	defer stopRunners()
	for _, run := range l.controller.Runners {
		runners.Go(func() {
			if err := runContained(runnersCtx, run); err != nil {
				l.fail(err)
			} else if runnersCtx.Err() == nil {
				l.fail(errors.New("a loop of the controller ended by itself"))
			}
		})
	}

	select {
	case <-ctx.Done():
		return nil
	case err := <-l.group.Failed():
		return err
	case <-l.lease.Failed():
		return l.failure()
	case err := <-l.failed:
		return err
	}
}

// awaitCaches returns when this process leads and the caches hold everything
// that this controller, or an earlier leader, wrote.
func (l *Life) awaitCaches(ctx context.Context, lead <-chan struct{}) error {
	if err := l.lease.WaitForSync(ctx, nil); err != nil {
		return fmt.Errorf("wait for caches: %w", err)
	}
	l.keys.Store(int64(1 + l.group.Status().Depth))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-lead:
	}
	l.keys.Store(0)
	if err := l.lease.WaitForSync(ctx, l.o.Marks.Snapshot()); err != nil {
		return fmt.Errorf("wait for caches to hold own writes: %w", err)
	}
	if l.o.CatchUp == nil {
		return nil
	}
	if err := l.o.CatchUp(ctx, l.lease); err != nil {
		return fmt.Errorf("wait for caches to hold the former leader's writes: %w", err)
	}
	return nil
}

// untilFailure returns a context that ends with ctx, and also when an event
// handler fails, so that nothing waits for a controller that cannot start.
// The returned function must be called.
func (l *Life) untilFailure(ctx context.Context) (context.Context, func()) {
	derived, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-derived.Done():
		case <-l.lease.Failed():
			cancel()
		}
	})
	return derived, func() {
		cancel()
		watch.Wait()
	}
}

// failure is the panic of an event handler, nil if there was none.
func (l *Life) failure() error {
	if err := l.lease.Err(); err != nil {
		return &PanicError{Value: err}
	}
	return nil
}

// fail keeps the first failure.
func (l *Life) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// takeBack ends the queues, then the handlers, which must leave last.
func (l *Life) takeBack(workCtx context.Context) {
	if l.Outgrown() {
		l.group.Discard() // or the next life would be as large
	}
	err := l.group.Drain(workCtx)
	if err != nil {
		// The supervisor keeps the controller stuck until Run returns.
		l.o.Logger.Error("controller does not end", "controller", l.name, "err", err)
		<-l.group.Done()
	}
	l.lease.Release()
}

// Outgrown implements supervisor.Life. While the life stands by, nothing takes
// keys from its queues, not even those of objects that are gone by then. So a
// standby is outgrown when far more keys wait than there were objects at first.
func (l *Life) Outgrown() bool {
	keys := l.keys.Load()
	return keys > 0 && int64(l.group.Status().Depth) > 2*keys+outgrownMin
}

// Ready implements supervisor.Life.
func (l *Life) Ready() <-chan struct{} { return l.ready }

// Resize implements supervisor.Life.
func (l *Life) Resize(workers int) {
	l.workers.Store(int64(workers))
	l.group.Resize(workers)
}

// ApplyLive implements supervisor.Life.
func (l *Life) ApplyLive(section schema.Section) {
	l.Resize(section.Base().Workers)
	if l.controller.ApplyLive == nil {
		return
	}
	var err error
	func() {
		defer recoverTo(&err)
		l.controller.ApplyLive(section)
	}()
	if err != nil {
		l.fail(fmt.Errorf("apply live fields: %w", err))
	}
}

// Work implements supervisor.Life.
func (l *Life) Work() work.Status { return l.group.Status() }

// Informers implements supervisor.Life.
func (l *Life) Informers() []string { return l.lease.Informers() }

// Handler implements supervisor.Life.
func (l *Life) Handler() http.Handler { return l.controller.Handler }

// PanicError is a panic of a controller outside its reconciles: in its
// constructor, an event handler, a loop of its own, or when live fields are applied.
type PanicError struct {
	Value any
	// Stack is empty for event handlers, whose panics are logged where they happen.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

func runContained(ctx context.Context, run func(context.Context) error) (err error) {
	defer recoverTo(&err)
	return run(ctx)
}

func recoverTo(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}
