package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

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
	// returns an empty string. Feature gates of the descriptor are looked at
	// before. Default: all can run.
	Unavailable func(name string, cfg *schema.ControllerManagerConfiguration) string
	// OnStateChange is called, one call at a time per controller, when the
	// state of a controller changes, and with from and to Stuck when a stuck
	// one has not ended although leadership was lost. It must not block. May be nil.
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

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.OnStateChange == nil {
		o.OnStateChange = func(string, State, State, string) {}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	o.BackoffMin = cmp.Or(o.BackoffMin, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, 5*time.Minute)
	o.HealthyAfter = cmp.Or(o.HealthyAfter, 5*time.Minute)
	o.StopGrace = cmp.Or(o.StopGrace, 10*time.Second)
	o.HungAfter = cmp.Or(o.HungAfter, 10*time.Minute)
	return o
}

// Supervisor drives controllers towards the newest configuration.
//
// Each controller of the build has a slot, a goroutine that alone decides about
// it. The supervisor tells the slots what is wanted and never waits for them.
type Supervisor struct {
	o     Options
	slots map[string]*slot
	// absent are the known controllers that this build does not have.
	absent map[string]Status

	mu sync.Mutex
	// newest configuration, effective, and which of its settings are pending.
	newest  *schema.ControllerManagerConfiguration
	pending []PendingSetting
	// asked and posted number the questions after availability, so that a slow
	// answer does not replace that to a newer question.
	asked, posted int
	// reasons why controllers are unavailable, from the newest answer.
	reasons map[string]string
	// wanted is what the slots were told last.
	wanted desired
	// settledAt is up to which version of wanted each slot has settled.
	settledAt map[string]int
	waiters   []waiter
}

// waiter is closed when all slots have settled at version or later.
type waiter struct {
	version int
	settled chan struct{}
}

// New makes a supervisor that starts nothing before Run.
func New(o Options) *Supervisor {
	o = o.withDefaults()
	s := &Supervisor{o: o, slots: map[string]*slot{}, absent: map[string]Status{}, settledAt: map[string]int{}}
	turns := newTurns()
	for _, d := range o.Descriptors {
		s.slots[d.Name()] = newSlot(d, &s.o, turns, s.settle)
		s.settledAt[d.Name()] = -1
	}
	for _, known := range o.Known {
		if _, ok := s.slots[known.Name]; !ok {
			s.absent[known.Name] = Status{
				Name: known.Name, State: Unavailable, Since: o.Clock.Now(), Reason: "not available in this build",
			}
		}
	}
	return s
}

// Run drives the controllers until ctx ends, then stops all of them at the same
// time. It returns when all have stopped, or with an error that names those that
// are stuck. States stay as they are afterwards. To be called once.
func (s *Supervisor) Run(ctx context.Context) error {
	var slots sync.WaitGroup
	for _, slot := range s.slots {
		slots.Go(func() { slot.run(context.WithoutCancel(ctx)) })
	}
	<-ctx.Done()
	s.mu.Lock()
	s.wanted.final = true
	s.postLocked()
	s.mu.Unlock()
	slots.Wait()
	return s.stuck(func(slot *slot) bool { return slot.status().State == Stuck }, "controllers do not stop")
}

// Apply makes cfg the desired state, in place of an earlier one that may still
// be in the making, and returns at once with what will be done. settled is closed
// when every controller is where cfg, or a newer one, wants it, or has failed or is stuck.
// Settings that need a restart of the process keep the value of the first cfg.
// cfg must not be changed afterwards.
func (s *Supervisor) Apply(cfg *schema.ControllerManagerConfiguration) (plan []Step, settled <-chan struct{}) {
	s.mu.Lock()
	before, reasonsBefore := s.newest, s.reasons
	effective, pending := cfg, []PendingSetting(nil)
	if before != nil {
		effective, pending = KeepPending(before, cfg)
	}
	s.newest, s.pending = effective, pending
	s.asked++
	question := s.asked
	s.mu.Unlock()

	reasons := s.ask(effective)
	settled = s.answer(question, effective, reasons)
	plan = Plan(before, cfg, PlanOptions{
		Descriptors: s.o.Descriptors,
		Unavailable: func(name string, of *schema.ControllerManagerConfiguration) string {
			if of == before {
				return reasonsBefore[name]
			}
			return reasons[name]
		},
	})
	if before != nil {
		for _, step := range plan {
			s.o.Logger.Info("Reload", "of", cmp.Or(step.Controller, step.Setting), "action", step.Action, "reason", step.Reason)
		}
	}
	return plan, settled
}

// Recheck asks again which controllers are unavailable; for when discovery has changed.
func (s *Supervisor) Recheck() {
	s.mu.Lock()
	cfg := s.newest
	s.asked++
	question := s.asked
	s.mu.Unlock()
	if cfg != nil {
		s.answer(question, cfg, s.ask(cfg))
	}
}

// ask returns why controllers are unavailable with cfg.
func (s *Supervisor) ask(cfg *schema.ControllerManagerConfiguration) map[string]string {
	reasons := map[string]string{}
	for name, slot := range s.slots {
		if !enabled(slot.descriptor, cfg) {
			continue
		}
		if reason := whyUnavailable(slot.descriptor, cfg, s.o.Unavailable); reason != "" {
			reasons[name] = reason
		}
	}
	return reasons
}

// answer tells the slots, unless they know the answer to a newer question already.
func (s *Supervisor) answer(question int, cfg *schema.ControllerManagerConfiguration, reasons map[string]string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if question > s.posted {
		s.posted = question
		s.reasons = reasons
		s.wanted.cfg = cfg
		s.postLocked()
	}
	return s.settledLocked()
}

// SetLeading lets controllers reconcile, or cancels them and makes them stand by.
func (s *Supervisor) SetLeading(leading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted.leading == leading {
		return
	}
	s.wanted.leading = leading
	s.wanted.term++
	s.postLocked()
}

func (s *Supervisor) postLocked() {
	s.wanted.version++
	for name, slot := range s.slots {
		d := s.wanted
		d.unavailable = s.reasons[name]
		slot.inbox.put(d)
	}
}

// Effective returns the newest configuration with those settings that need a
// restart of the process at the value they run with, and these settings. Nil before the first Apply.
func (s *Supervisor) Effective() (*schema.ControllerManagerConfiguration, []PendingSetting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest, s.pending
}

// Settled returns a channel that is closed when every controller is where it
// is wanted at the moment of the call, or later, or has failed or is stuck.
func (s *Supervisor) Settled() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settledLocked()
}

func (s *Supervisor) settledLocked() <-chan struct{} {
	w := waiter{version: s.wanted.version, settled: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.wakeLocked()
	return w.settled
}

// settle is called by the slots.
func (s *Supervisor) settle(name string, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version > s.settledAt[name] {
		s.settledAt[name] = version
		s.wakeLocked()
	}
}

func (s *Supervisor) wakeLocked() {
	if len(s.waiters) == 0 {
		return
	}
	reached := s.wanted.version
	for _, version := range s.settledAt {
		reached = min(reached, version)
	}
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
		if w.version > reached {
			return false
		}
		close(w.settled)
		return true
	})
}

// Status of all known controllers, by name.
func (s *Supervisor) Status() []Status {
	all := slices.Collect(maps.Values(s.absent))
	for _, slot := range s.slots {
		all = append(all, slot.status())
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Lookup returns the status of the controller of that canonical name.
func (s *Supervisor) Lookup(name string) (Status, bool) {
	if slot, ok := s.slots[name]; ok {
		return slot.status(), true
	}
	status, ok := s.absent[name]
	return status, ok
}

// Handler returns the debug handler of a controller that has a life, or nil.
func (s *Supervisor) Handler(name string) http.Handler {
	if slot, ok := s.slots[name]; ok {
		if life := slot.life(); life != nil {
			return life.Handler()
		}
	}
	return nil
}

// StuckAfterLoss names the controllers that have not ended although leadership was lost.
// The process should exit then.
func (s *Supervisor) StuckAfterLoss() error {
	return s.stuck((*slot).stuckAfterLoss, "controllers do not end although leadership was lost")
}

func (s *Supervisor) stuck(is func(*slot) bool, what string) error {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(s.slots)) {
		if slot := s.slots[name]; is(slot) {
			found = append(found, fmt.Sprintf("%s (%s)", name, slot.status().Reason))
		}
	}
	if found == nil {
		return nil
	}
	return errors.New(what + ": " + strings.Join(found, ", "))
}
