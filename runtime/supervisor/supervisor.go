package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// The causes with which a life's context ends.
var (
	// ErrStop lets the reconciles under way finish.
	ErrStop = errors.New("the controller is being stopped")
	// ErrLeadershipLost gives everything up at once.
	ErrLeadershipLost = errors.New("leadership was lost")
)

// Life is one instance of a controller, from its making to the end of its last goroutine.
type Life interface {
	// Run makes the controller ready and reconciles from when lead is closed.
	// It is called exactly once, even when ctx has ended already, and gives back
	// everything that the life holds. When ctx ends, it takes no more work and
	// returns after every goroutine of the life has ended; context.Cause(ctx)
	// is ErrStop or ErrLeadershipLost. work is the context of reconciles: it outlives
	// ctx while they may finish, and ends when they must be given up, because
	// leadership was lost or reload.drainTimeout is over. A return before ctx
	// has ended is a failure.
	Run(ctx, work context.Context, lead <-chan struct{}) error
	// Ready is closed when the life reconciles.
	Ready() <-chan struct{}
	// Resize sets the number of workers. It does not block.
	Resize(workers int)
	// ApplyLive takes a section that differs in live fields and workers only.
	ApplyLive(section schema.Section)
	// Work, Informers and Handler may be called at any time, concurrently.
	Work() work.Status
	Informers() []string
	// Handler may return nil.
	Handler() http.Handler
}

// Factory makes a life that is not running yet. cfg is the configuration that section is part of.
type Factory func(name string, section schema.Section, cfg *schema.ControllerManagerConfiguration) (Life, error)

// Options of a supervisor. Descriptors and Factory are required.
type Options struct {
	// Descriptors of the controllers in this build.
	Descriptors []controller.Descriptor
	// Known are all controllers that the configuration knows; those without a
	// descriptor are Unavailable.
	Known []schema.SectionType
	// Factory makes lives.
	Factory Factory
	// Unavailable says why a controller cannot run in this cluster with cfg, or
	// returns an empty string. Default: all can run.
	Unavailable func(name string, cfg *schema.ControllerManagerConfiguration) string
	// FeatureEnabled tells whether a feature gate is on. Default: what cfg.FeatureGates says.
	FeatureEnabled func(cfg *schema.ControllerManagerConfiguration, gate string) bool
	// OnStateChange is called, one call at a time per controller, when the
	// state of a controller changes, and once more with from and to Stuck when it is
	// stuck after leadership was lost. It must not block. May be nil.
	OnStateChange func(name string, from, to State, reason string)
	// Logger. Default: slog.Default.
	Logger *slog.Logger
	// Clock. Default: the real one.
	Clock clock.WithTicker
	// BackoffMin and BackoffMax bound the wait before a failed controller is
	// started again, which doubles with every failure. Default: 1 s and 5 min.
	BackoffMin, BackoffMax time.Duration
	// HealthyAfter is how long a controller must run for its failures to be forgotten. Default: 5 min.
	HealthyAfter time.Duration
	// StopGrace is how long a life may take to end after its work context
	// has, before it counts as stuck. Default: 10 s.
	StopGrace time.Duration
	// HungAfter is how long a reconcile, or a start, may last before the
	// controller is unhealthy. Default: 10 min.
	HungAfter time.Duration
	// Rand returns a random number in [0, 1). Default: math/rand/v2.Float64.
	Rand func() float64
}

// Supervisor drives controllers towards the newest configuration.
type Supervisor struct{}

// New makes a supervisor that does nothing before Run.
func New(o Options) *Supervisor { return &Supervisor{} }

// Run drives the controllers until ctx ends, then stops all of them at the same
// time. It returns when all have stopped, or with an error that names those that are stuck.
// To be called once.
func (s *Supervisor) Run(ctx context.Context) error { return nil }

// Apply makes cfg the desired state, in place of an earlier one that may still
// be in the making, and returns at once with what will be done. settled is closed
// when every controller is where cfg, or a newer one, wants it, or has failed or is stuck.
// Settings that need a restart of the process keep the value of the first cfg.
// cfg must not be changed afterwards.
func (s *Supervisor) Apply(cfg *schema.ControllerManagerConfiguration) (plan []Step, settled <-chan struct{}) {
	return nil, nil
}

// Effective returns the newest configuration with those settings that need a
// restart of the process at the value they run with, and these settings. Nil before the first Apply.
func (s *Supervisor) Effective() (*schema.ControllerManagerConfiguration, []PendingSetting) {
	return nil, nil
}

// SetLeading lets controllers reconcile, or cancels them and makes them stand by.
func (s *Supervisor) SetLeading(leading bool) {}

// Recheck asks again which controllers are unavailable; for when discovery has changed.
func (s *Supervisor) Recheck() {}

// Status of all known controllers, by name.
func (s *Supervisor) Status() []Status { return nil }

// Lookup returns the status of the controller of that canonical name.
func (s *Supervisor) Lookup(name string) (Status, bool) { return Status{}, false }

// Handler returns the debug handler of a running controller, or nil.
func (s *Supervisor) Handler(name string) http.Handler { return nil }

// Healthy returns why a controller does not do its work, nil when it does or need not.
func (s *Supervisor) Healthy(name string) error { return nil }

// StuckAfterLoss names the controllers that have not ended although leadership was lost.
// The process should exit then.
func (s *Supervisor) StuckAfterLoss() error { return nil }
