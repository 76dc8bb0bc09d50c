package election

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// healthTolerance is how much longer than the lease's duration a leader may be
// without a renewal before its health check fails.
const healthTolerance = 20 * time.Second

// Options of an Elector. All but Events and Written are required.
type Options struct {
	// Leases is an unfenced client. It needs no timeout of its own, and must
	// have none, since the Lease is watched with it.
	Leases coordinationv1client.LeasesGetter
	Config schema.LeaderElection
	// Identity is unique to the process, by custom HOSTNAME_UUID.
	Identity string
	Fence    *client.Fence
	// Events go to the Lease: reason LeaderElection, "IDENTITY became leader"
	// and "IDENTITY stopped leading".
	Events record.EventRecorder
	Logger *slog.Logger
	// OnLead is called in its own goroutine when this process begins to lead.
	// Its context ends when leadership does.
	OnLead func(ctx context.Context)
	// OnLost is called once for each OnLead, after the fence was shut, the
	// context ended and OnLead returned. It returns when everything that must
	// not run without the lease has ended; only then the process stands again.
	OnLost func()
	// Written tells the last writes of this process; they are left in the
	// Lease on release.
	Written func() map[apischema.GroupResource]string
}

// Elector stands for the lease.
type Elector struct {
	o      Options
	seen   observation
	health *leaderelection.HealthzAdaptor

	mu sync.Mutex
	// config is Options.Config with the changes by Apply.
	config  schema.LeaderElection
	leader  bool
	last    handover
	running bool
	stop    context.CancelFunc
	stopped chan struct{}
}

// handover is what the leader before has left.
type handover struct {
	marks map[apischema.GroupResource]string
	known bool
}

// New checks the options.
func New(o Options) (*Elector, error) {
	switch {
	case o.Fence == nil || o.Logger == nil || o.OnLead == nil || o.OnLost == nil:
		return nil, errors.New("make the elector: Fence, Logger, OnLead and OnLost are required")
	case o.Config.Enabled && (o.Leases == nil || o.Identity == ""):
		return nil, errors.New("make the elector: Leases and Identity are required")
	}
	if o.Config.Enabled {
		if err := timingsOf(o.Config).check(); err != nil {
			return nil, err
		}
	}
	return &Elector{
		o:       o,
		config:  o.Config,
		health:  leaderelection.NewLeaderHealthzAdaptor(healthTolerance),
		stopped: make(chan struct{}),
	}, nil
}

// Run stands for the lease until ctx ends or Release is called; losing the
// lease does not end it. When ctx ends the lease is kept, and expires. It is
// called once.
func (e *Elector) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !e.begin(cancel) {
		return errors.New("run the elector: it was run or released before")
	}
	defer close(e.stopped)
	if !e.o.Config.Enabled {
		e.leadAlways(ctx)
		return nil
	}
	for ctx.Err() == nil {
		a, err := e.acquire(ctx)
		if err != nil {
			return err
		}
		if a == nil {
			break
		}
		if err := e.lead(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (e *Elector) begin(stop context.CancelFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running || closed(e.stopped) {
		return false
	}
	e.running, e.stop = true, stop
	return true
}

// Apply takes the timings and releaseOnExit of c while the process goes on
// leading or standing by; a leader begins to use new timings after its next
// renewal. Other fields are ignored.
func (e *Elector) Apply(c schema.LeaderElection) error {
	if e.o.Config.Enabled {
		if err := timingsOf(c).check(); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.config.LeaseDuration, e.config.RenewDeadline, e.config.RetryPeriod = c.LeaseDuration, c.RenewDeadline, c.RetryPeriod
	e.config.ReleaseOnExit = c.ReleaseOnExit
	return nil
}

// Status of the election.
func (e *Elector) Status() Status {
	e.mu.Lock()
	s := Status{Leader: e.leader, Identity: e.o.Identity, FencedRequests: e.o.Fence.Refused()}
	e.mu.Unlock()
	lease := e.seen.last()
	if lease == nil {
		return s
	}
	s.Holder = holder(lease)
	s.Transitions = int(transitions(lease))
	if lease.Spec.AcquireTime != nil {
		s.AcquiredAt = lease.Spec.AcquireTime.Time
	}
	if lease.Spec.RenewTime != nil {
		s.RenewedAt = lease.Spec.RenewTime.Time
	}
	return s
}

// LastMarks are the last writes of the leader before this one, by resource,
// for OnLead: caches must reach them. It is false when they are not known, as
// after a leader that died or that was not of this kind.
func (e *Elector) LastMarks() (marks map[apischema.GroupResource]string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last.marks, e.last.known
}

// Name of the health check.
func (e *Elector) Name() string { return e.health.Name() }

// Check fails when this process believes that it leads but has not renewed the
// lease for 20 s longer than its duration. A standby is healthy.
func (e *Elector) Check(req *http.Request) error { return e.health.Check(req) }

func (e *Elector) timings() timings {
	e.mu.Lock()
	defer e.mu.Unlock()
	return timingsOf(e.config)
}

func (e *Elector) leases() coordinationv1client.LeaseInterface {
	return e.o.Leases.Leases(e.o.Config.ResourceNamespace)
}

func (e *Elector) leaseName() string {
	return e.o.Config.ResourceNamespace + "/" + e.o.Config.ResourceName
}

// extendFence extends the fence unless a's term is over: an answer may arrive late.
func (e *Elector) extendFence(a *attempt, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !a.over {
		e.o.Fence.Extend(until)
	}
}

// endTerm shuts the fence for good as far as these attempts are concerned.
func (e *Elector) endTerm(attempts ...*attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range attempts {
		a.over = true
	}
	e.o.Fence.Shut()
	e.leader = false
}
