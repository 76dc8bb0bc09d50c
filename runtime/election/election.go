package election

import (
	"context"
	"log/slog"
	"net/http"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Options of an Elector. All but Events and Written are required.
type Options struct {
	// Leases is an unfenced client. It needs no timeout of its own.
	Leases coordinationv1.LeasesGetter
	Config schema.LeaderElection
	// Identity is unique to the process, by custom HOSTNAME_UUID.
	Identity string
	Fence    *client.Fence
	Events   record.EventRecorder
	Logger   *slog.Logger
	// OnLead is called in its own goroutine when this process begins to lead.
	// Its context ends when leadership does.
	OnLead func(ctx context.Context)
	// OnLost is called once for each OnLead, after the fence was shut, the
	// context ended and OnLead returned. It returns when everything that must
	// not run without the lease has ended; only then the process stands again.
	OnLost func()
	// Written tells the last writes of this process; they are left in the Lease on release.
	Written func() map[apischema.GroupResource]string
}

// Elector stands for the lease.
type Elector struct{}

// New checks the options.
func New(o Options) (*Elector, error) { return &Elector{}, nil }

// Run stands for the lease until ctx ends or Release is called; losing the
// lease does not end it.
func (e *Elector) Run(ctx context.Context) error { return nil }

// Apply takes the timings and releaseOnExit of c while the process goes on
// leading or standing by. Other fields are ignored.
func (e *Elector) Apply(c schema.LeaderElection) error { return nil }

// Release gives the lease back, if releaseOnExit is set, and ends Run. Call it
// after everything that must not run without the lease has ended.
func (e *Elector) Release(ctx context.Context) error { return nil }

// Status of the election.
func (e *Elector) Status() Status { return Status{} }

// LastMarks are the last writes of the leader before this one, by resource. ok
// is false when they are not known.
func (e *Elector) LastMarks() (marks map[apischema.GroupResource]string, ok bool) { return nil, false }

// Name of the health check.
func (e *Elector) Name() string { return "leaderElection" }

// Check fails when this process believes that it leads but has not renewed the
// lease for 20 s longer than its duration.
func (e *Elector) Check(*http.Request) error { return nil }
