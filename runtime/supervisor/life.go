package supervisor

import (
	"context"
	"errors"
	"net/http"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// The causes with which a life's contexts end.
var (
	// ErrStop lets the reconciles under way finish.
	ErrStop = errors.New("the controller is being stopped")
	// ErrLeadershipLost gives everything up at once.
	ErrLeadershipLost = errors.New("leadership was lost")
	// ErrDrainTimeout gives up the reconciles that have not finished within reload.drainTimeout.
	ErrDrainTimeout = errors.New("reload.drainTimeout is over")
)

// Life is one instance of a controller, from its making to the end of its last goroutine.
type Life interface {
	// Run makes the controller ready and reconciles from when lead is closed.
	// It is called exactly once, even when ctx has ended already, and gives back
	// everything that the life holds. When ctx ends, it takes no more work and
	// returns after every goroutine of the life has ended; context.Cause(ctx)
	// is ErrStop or ErrLeadershipLost. workCtx is the context of reconciles: it
	// outlives ctx while they may finish, and ends with ErrLeadershipLost or
	// ErrDrainTimeout when they must be given up. A return before ctx has ended is a failure.
	Run(ctx, workCtx context.Context, lead <-chan struct{}) error
	// Ready is closed when the life reconciles.
	Ready() <-chan struct{}
	// Resize sets the number of workers. It does not block.
	Resize(workers int)
	// ApplyLive takes a section that differs in live fields, client and
	// workers only. One call at a time.
	ApplyLive(section schema.Section)
	// Outgrown tells that a life which does not reconcile yet keeps much more
	// work than there is to do, so that a new one would be smaller.
	Outgrown() bool
	// Outgrown, Work, Informers and Handler may be called at any time, concurrently.
	Work() work.Status
	Informers() []string
	// Handler may return nil.
	Handler() http.Handler
}

// Factory makes a life that is not running yet. cfg is the configuration that section is part of.
type Factory func(name string, section schema.Section, cfg *schema.ControllerManagerConfiguration) (Life, error)
