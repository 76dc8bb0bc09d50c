package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// instance is a life of the controller as its slot sees it. Its fields belong
// to the slot's goroutine; its own goroutines report through the channels.
type instance struct {
	cancel     context.CancelCauseFunc
	cancelWork context.CancelCauseFunc
	lead       chan struct{}
	// made delivers the life when the factory has returned one, ended the
	// outcome when Run, or a factory without success, has returned.
	made  chan Life
	ended chan error
	// applying delivers the outcome of an ApplyLive under way; nil when there is none.
	applying chan error

	life  Life
	ready <-chan struct{}
	// cfg is the configuration that the life works by.
	cfg     *schema.ControllerManagerConfiguration
	readyAt time.Time
	// led is true once lead is closed, in that term.
	led  bool
	term int

	stopping  bool
	stopSince time.Time
	// lostAt is when leadership was lost, zero when the life ends for another reason.
	lostAt time.Time
	// runEnded is set when Run has returned; an ApplyLive may still be under way.
	runEnded bool
	runErr   error
	// failure is why the life ends if nobody wanted it to.
	failure error
}

// newInstance makes a life and runs it. ctx ends never.
func newInstance(ctx context.Context, name string, d desired, factory Factory) *instance {
	runCtx, cancel := context.WithCancelCause(ctx)
	workCtx, cancelWork := context.WithCancelCause(ctx)
	in := &instance{
		cancel:     cancel,
		cancelWork: cancelWork,
		lead:       make(chan struct{}),
		made:       make(chan Life, 1),
		ended:      make(chan error, 1),
		cfg:        d.cfg,
	}
	go func() {
		in.ended <- contain("controller", func() error {
			life, err := factory(name, d.cfg.Controllers.Sections[name], d.cfg)
			if err != nil {
				return fmt.Errorf("make the controller: %w", err)
			}
			if life == nil {
				return errors.New("make the controller: the factory returned nothing")
			}
			in.made <- life
			return life.Run(runCtx, workCtx, in.lead)
		})
	}()
	return in
}

// letLead lets the life reconcile.
func (in *instance) letLead(term int) {
	in.led, in.term = true, term
	close(in.lead)
}

// stop ends the life. A loss of leadership ends its reconciles at once.
func (in *instance) stop(cause error, now time.Time) {
	in.stopping, in.stopSince = true, now
	in.cancel(cause)
	if errors.Is(cause, ErrLeadershipLost) {
		in.lose(now)
	}
}

func (in *instance) lose(now time.Time) {
	in.lostAt = now
	in.cancelWork(ErrLeadershipLost)
}

// applyLive hands section to the life, beside the slot, as it is the controller's code.
func (in *instance) applyLive(section schema.Section) {
	outcome := make(chan error, 1)
	in.applying = outcome
	life := in.life
	go func() {
		outcome <- contain("applying live fields", func() error {
			life.ApplyLive(section)
			return nil
		})
	}()
}

// release frees the contexts of a life that has ended.
func (in *instance) release() {
	in.cancel(ErrStop)
	in.cancelWork(ErrStop)
}

var errGoexit = errors.New("runtime.Goexit was called")

// contain turns a panic of f into an error that holds its stack.
func contain(what string, f func() error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil {
			value = errGoexit
		}
		err = &PanicError{What: what, Value: value, Stack: debug.Stack()}
	}()
	err = f()
	returned = true
	return err
}

// PanicError is a panic of a controller outside of its reconciles.
type PanicError struct {
	What  string
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.What, e.Value) }
