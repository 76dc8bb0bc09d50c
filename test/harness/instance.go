package harness

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/life"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	config "github.com/wheelhouse-project/wheelhouse/schema"
)

const (
	// stopWithin is how long a controller may take to end, and readyWithin how
	// long caches may take; test machines are busy.
	stopWithin  = time.Minute
	readyWithin = 2 * time.Minute
)

// Instance is a controller of an engine, through all its restarts.
type Instance struct {
	// Metrics is the controller's own registry, which restarts do not empty.
	Metrics *prometheus.Registry

	e          *Engine
	descriptor controller.Descriptor
	clients    client.Clients
	marks      *client.Marks
	memory     controller.Memory

	// operating is held by the operation under way, so that they may be
	// called from several goroutines.
	operating sync.Mutex

	mu      sync.Mutex
	section config.Section
	running *running
	// lease of the caches, from the first reconcile on.
	lease *informers.Lease
	// aborted is when a life was cut short; zero when none was, or a later one
	// has seen what came of it.
	aborted time.Time
}

// running is one life of a controller.
type running struct {
	life *life.Life
	// stop ends the life, giveUp its reconciles.
	stop   context.CancelCauseFunc
	giveUp context.CancelFunc
	done   chan struct{}
	// err is set before done is closed.
	err error
}

// Start starts a controller and returns when it reconciles, or, on a standby,
// at once. A nil section is the default one.
func (e *Engine) Start(d controller.Descriptor, section config.Section) *Instance {
	e.t.Helper()
	if section == nil {
		section = d.Section.New()
	}
	clients, marks, err := e.builder.For(d.Name(), d.ServiceAccount)
	if err != nil {
		e.t.Fatalf("make clients of %s: %v", d.Name(), err)
	}
	i := &Instance{
		Metrics:    prometheus.NewPedanticRegistry(),
		e:          e,
		descriptor: d,
		clients:    clients,
		marks:      marks,
		section:    section,
	}
	e.mu.Lock()
	e.instances = append(e.instances, i)
	e.mu.Unlock()
	i.Start()
	return i
}

// Start starts a stopped controller with its last section, and returns when it
// reconciles, or, on a standby, at once. It does nothing when it runs.
func (i *Instance) Start() {
	i.e.t.Helper()
	i.operating.Lock()
	defer i.operating.Unlock()
	i.start()
}

func (i *Instance) start() {
	i.e.t.Helper()
	i.mu.Lock()
	if i.running != nil {
		i.mu.Unlock()
		return
	}
	section := i.section
	i.mu.Unlock()

	made, err := life.New(life.Options{
		Descriptor: i.descriptor,
		Section:    section,
		Config:     i.e.config,
		Clients:    i.clients,
		Marks:      i.marks,
		Memory:     &i.memory,
		Pool:       i.e.pool,
		Discovery:  i.e.discovery,
		Events:     i.e.events.Recorder(i.descriptor.EventComponent()),
		Metrics:    i.Metrics,
		CatchUp:    i.keepLease,
		ServerCA:   i.e.builder.ServerCA,
		Logger:     i.e.logger.With("controller", i.descriptor.Name()),
		Clock:      i.e.clock,
	})
	if err != nil {
		i.e.t.Errorf("start %s: %v", i.descriptor.Name(), err)
		return
	}
	ctx, stop := context.WithCancelCause(context.Background())
	workCtx, giveUp := context.WithCancel(context.Background())
	r := &running{life: made, stop: stop, giveUp: giveUp, done: make(chan struct{})}
	i.e.mu.Lock()
	lead, leading := i.e.lead, i.e.leading
	i.e.mu.Unlock()
	go func() {
		defer close(r.done)
		defer giveUp()
		r.err = made.Run(ctx, workCtx, lead)
		if ctx.Err() == nil {
			i.e.t.Errorf("%s ended by itself: %v", i.descriptor.Name(), r.err)
		}
	}()
	i.mu.Lock()
	i.running = r
	i.mu.Unlock()
	if leading {
		i.waitReady(r)
	}
}

// WaitReady returns when the controller reconciles.
func (i *Instance) WaitReady() {
	i.e.t.Helper()
	i.mu.Lock()
	r := i.running
	i.mu.Unlock()
	if r == nil {
		i.e.t.Errorf("%s is not started", i.descriptor.Name())
		return
	}
	i.waitReady(r)
}

func (i *Instance) waitReady(r *running) {
	i.e.t.Helper()
	timer := time.NewTimer(readyWithin)
	defer timer.Stop()
	select {
	case <-r.life.Ready():
	case <-r.done:
	case <-timer.C:
		i.e.t.Errorf("%s does not reconcile %s after its start", i.descriptor.Name(), readyWithin)
	}
}

// Stop stops the controller as a reload does: reconciles under way may finish
// within reload.drainTimeout. It fails the test when the controller has not
// ended a minute after they were cancelled.
func (i *Instance) Stop() {
	i.e.t.Helper()
	i.operating.Lock()
	defer i.operating.Unlock()
	i.stop(false)
}

// Abort stops the controller as a loss of leadership does: reconciles under
// way are cancelled.
func (i *Instance) Abort() {
	i.e.t.Helper()
	i.operating.Lock()
	defer i.operating.Unlock()
	i.stop(true)
}

func (i *Instance) stop(abort bool) {
	i.e.t.Helper()
	i.mu.Lock()
	r := i.running
	i.running = nil
	i.mu.Unlock()
	if r == nil {
		return
	}
	if abort {
		r.stop(supervisor.ErrLeadershipLost)
		r.giveUp()
	} else {
		r.stop(supervisor.ErrStop)
	}
	if !abort {
		drain := time.NewTimer(i.e.config.Reload.DrainTimeout.Duration)
		defer drain.Stop()
		select {
		case <-r.done:
		case <-drain.C:
			r.giveUp()
		}
	}
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		i.e.t.Errorf("%s has not stopped after %s; goroutines:\n%s", i.descriptor.Name(), stopWithin, stacks)
		r.giveUp()
		<-r.done
	}
	if abort {
		i.mu.Lock()
		i.aborted = time.Now()
		i.mu.Unlock()
	}
	if r.err != nil {
		i.e.t.Errorf("stop %s: %v", i.descriptor.Name(), r.err)
	}
}

// Restart stops and starts the controller, as an edit of its section does.
func (i *Instance) Restart() {
	i.e.t.Helper()
	i.operating.Lock()
	defer i.operating.Unlock()
	i.stop(false)
	i.start()
}

// Reconfigure restarts the controller with another section.
func (i *Instance) Reconfigure(section config.Section) {
	i.e.t.Helper()
	i.operating.Lock()
	defer i.operating.Unlock()
	i.stop(false)
	i.mu.Lock()
	i.section = section
	i.mu.Unlock()
	i.start()
}

// Resize changes the number of workers while the controller runs.
func (i *Instance) Resize(workers int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running != nil {
		i.running.life.Resize(workers)
	}
}

// Handler is the debug handler of the controller; nil when it does not run.
func (i *Instance) Handler() http.Handler {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running == nil {
		return nil
	}
	return i.running.life.Handler()
}

// Summary is what the controller tells of itself, as JSON. It fails the test of
// one that does not run or sums nothing up.
func (i *Instance) Summary() string {
	i.e.t.Helper()
	summarizer, ok := i.Handler().(controller.Summarizer)
	if !ok {
		i.e.t.Fatal("the controller has no summary")
	}
	summary, err := json.Marshal(summarizer.Summary())
	if err != nil {
		i.e.t.Fatal(err)
	}
	return string(summary)
}

// ApplyLive changes fields of the section that need no restart.
func (i *Instance) ApplyLive(section config.Section) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.section = section
	if i.running != nil {
		i.running.life.ApplyLive(section)
	}
}

// Work is the status of the controller's queues; zero when it does not run.
func (i *Instance) Work() work.Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running == nil {
		return work.Status{}
	}
	return i.running.life.Work()
}

// Disturb restarts, aborts and resizes the controller at random moments until
// stop is called, which leaves it running with the number of workers of its
// section. The seed makes the sequence, though not its effect, repeatable.
func (i *Instance) Disturb(seed uint64) (stop func()) {
	i.e.t.Helper()
	return i.disturb(seed, true, 0, 0)
}

// Reload is Disturb without aborts, so that no request is cut off. Stop waits
// until there were at least so many restarts and changes of the number of workers.
func (i *Instance) Reload(seed uint64, restarts, resizes int) (stop func()) {
	i.e.t.Helper()
	return i.disturb(seed, false, restarts, resizes)
}

func (i *Instance) disturb(seed uint64, aborts bool, restarts, resizes int) (stop func()) {
	i.e.t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	i.e.t.Logf("disturbing %s with seed %d", i.descriptor.Name(), seed)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for restarted, resized := 0, 0; ; {
			ended := ctx.Done()
			if restarted < restarts || resized < resizes {
				ended = nil
			}
			timer := time.NewTimer(time.Duration(random.Int64N(int64(150 * time.Millisecond))))
			select {
			case <-timer.C:
			case <-ended:
				timer.Stop()
				i.e.t.Logf("%s: %d restarts, %d changes of the number of workers", i.descriptor.Name(), restarted, resized)
				return
			}
			switch choice := random.IntN(4); {
			case choice == 0:
				i.Resize(1 + random.IntN(10))
				resized++
			case choice == 1 && aborts:
				i.Abort()
				i.Start()
				restarted++
			default:
				i.Restart()
				restarted++
			}
		}
	}()
	return func() {
		cancel()
		<-done
		i.Start()
		i.Resize(i.section.Base().Workers)
	}
}
