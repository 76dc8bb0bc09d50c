package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// standbyCheck is how often a standby is asked whether it has outgrown its work.
const standbyCheck = time.Minute

// slot is the place of one controller. Its goroutine looks at what is wanted and at
// what there is, does the next thing that brings one closer to the other, and
// waits for something to happen. It never blocks on a controller.
type slot struct {
	descriptor controller.Descriptor
	o          *Options
	logger     *slog.Logger
	turns      turns
	inbox      *inbox
	settled    func(name string, version int)

	// The rest up to mu belongs to the goroutine.
	ctx context.Context
	d   desired
	// in is the life that there is, nil when there is none.
	in *instance
	// turn is held while the controller is the next to start; queued while it waits for it.
	turn   *turn
	queued bool
	starts int
	// failures since the controller was healthy last; failed is the last one
	// while its back-off lasts, until retryAt.
	failures int
	failed   error
	retryAt  time.Time

	mu        sync.Mutex
	published Status
	current   Life
	// failing is the last failure until the controller has recovered from it.
	failing   error
	lossStuck bool
}

func newSlot(d controller.Descriptor, o *Options, turns turns, settled func(string, int)) *slot {
	return &slot{
		descriptor: d,
		o:          o,
		logger:     o.Logger.With("controller", d.Name()),
		turns:      turns,
		inbox:      newInbox(),
		settled:    settled,
		published: Status{
			Name: d.Name(), State: Disabled, Since: o.Clock.Now(), Reason: "there is no configuration yet",
		},
	}
}

// progress is the outcome of a step.
type progress struct {
	// wake is when to look again if nothing happens; zero for never.
	wake time.Time
	// settled is true when nothing is left to do.
	settled bool
	// ended is true when the slot has nothing to do for ever.
	ended bool
}

// run ends when a final wish is fulfilled, or the controller is stuck then.
func (s *slot) run(ctx context.Context) {
	s.ctx = ctx
	defer s.settled(s.descriptor.Name(), math.MaxInt)
	for {
		s.queued = false
		p := s.step()
		if !s.queued && s.turn != nil {
			s.giveTurnBack()
		}
		if p.ended {
			return
		}
		if p.settled {
			s.settled(s.descriptor.Name(), s.d.version)
		}
		s.await(p.wake)
	}
}

// await returns when something has happened.
func (s *slot) await(wake time.Time) {
	var timer clock.Timer
	var alarm <-chan time.Time
	if !wake.IsZero() {
		timer = s.o.Clock.NewTimer(wake.Sub(s.o.Clock.Now()))
		defer timer.Stop()
		alarm = timer.C()
	}
	var next turns
	if s.queued && s.turn == nil {
		next = s.turns
	}
	in := s.in
	if in == nil {
		in = &instance{} // its channels are nil and never deliver
	}
	select {
	case <-s.inbox.changed:
		s.take(s.inbox.take())
	case t := <-next:
		s.turn = &t
	case <-alarm:
	case life := <-in.made:
		in.life, in.ready = life, life.Ready()
		s.setLife(life)
	case <-in.ready:
		in.ready, in.readyAt = nil, s.o.Clock.Now()
	case err := <-in.applying:
		in.applying = nil
		if err != nil {
			s.fail(in, err)
		}
	case err := <-in.ended:
		in.ended, in.runEnded, in.runErr = nil, true, err
	}
}

// take makes d the wish. A change that concerns the controller ends its back-off.
func (s *slot) take(d desired) {
	before := s.d
	s.d = d
	switch {
	case before.cfg == nil || d.cfg == nil:
	case enabled(s.descriptor, before.cfg) != enabled(s.descriptor, d.cfg),
		before.cfg != d.cfg && !compare(s.descriptor, before.cfg, d.cfg).empty():
		s.failures, s.failed = 0, nil
	case before.unavailable != d.unavailable, before.term != d.term:
		s.failed = nil
	}
}

func (s *slot) step() progress {
	now := s.o.Clock.Now()
	if in := s.in; in != nil && in.runEnded {
		if !in.stopping {
			s.endedByItself(in)
		}
		if in.applying == nil {
			s.bury(in, now)
		}
	}
	if s.in == nil {
		return s.stepIdle(now)
	}
	if !s.in.stopping {
		if reason, cause := s.mustStop(s.in); cause != nil {
			s.stop(s.in, cause, reason)
		}
	}
	if s.in.stopping {
		return s.stepStopping(s.in, now)
	}
	return s.stepAlive(s.in, now)
}

// stepIdle is for a controller without a life.
func (s *slot) stepIdle(now time.Time) progress {
	d := s.d
	switch {
	case d.final:
		return progress{ended: true}
	case d.cfg == nil:
		return progress{settled: true}
	case !enabled(s.descriptor, d.cfg):
		s.publish(Disabled, "disabled in the configuration")
		return progress{settled: true}
	case d.unavailable != "":
		s.publish(Unavailable, d.unavailable)
		return progress{settled: true}
	case !d.leading && !d.warm():
		s.publish(Standby, "starts when this process leads")
		return progress{settled: true}
	case s.failed != nil && now.Before(s.retryAt):
		s.publish(Failed, s.failed.Error())
		return progress{settled: true, wake: s.retryAt}
	case d.leading:
		if p, mine := s.awaitTurn(now); !mine {
			return p
		}
	}
	s.failed = nil
	s.starts++
	s.in = newInstance(s.ctx, s.descriptor.Name(), d, s.o.Factory)
	if d.leading {
		s.in.letLead(d.term)
	}
	s.mu.Lock()
	s.published.Restarts = s.starts - 1
	s.mu.Unlock()
	s.publish(Starting, "is being made")
	return progress{}
}

// awaitTurn takes the turn to start. Without it, the progress says what to wait for.
func (s *slot) awaitTurn(now time.Time) (progress, bool) {
	s.queued = true
	if s.turn == nil {
		select {
		case t := <-s.turns:
			s.turn = &t
		default:
			s.publish(Waiting, "other controllers start first")
			return progress{}, false
		}
	}
	if next := s.turn.next(s.d.cfg.Controllers.StartInterval.Duration); now.Before(next) {
		s.publish(Waiting, "controllers.startInterval since the last start is not over")
		return progress{wake: next}, false
	}
	s.queued = false
	s.turn = &turn{last: now, jitter: s.o.Rand()}
	s.giveTurnBack()
	return progress{}, true
}

func (s *slot) giveTurnBack() {
	s.turns <- *s.turn
	s.turn = nil
}

// mustStop returns why the life has to end, if it has to.
func (s *slot) mustStop(in *instance) (reason string, cause error) {
	d := s.d
	switch {
	case in.led && in.term != d.term:
		return ErrLeadershipLost.Error(), ErrLeadershipLost
	case d.final:
		return "the process ends", ErrStop
	case !enabled(s.descriptor, d.cfg):
		return "disabled in the configuration", ErrStop
	case d.unavailable != "":
		return d.unavailable, ErrStop
	case !d.leading && !d.warm():
		return "leaderElection.standby is cold", ErrStop
	case !in.led && !d.leading && in.life != nil && in.life.Outgrown():
		return "most of what it keeps to be done is for objects that are gone", ErrStop
	case in.cfg != d.cfg:
		if delta := compare(s.descriptor, in.cfg, d.cfg); len(delta.restart) > 0 {
			return "restarts for " + join(delta.restart), ErrStop
		}
	}
	return "", nil
}

func (s *slot) stop(in *instance, cause error, reason string) {
	in.stop(cause, s.o.Clock.Now())
	s.publish(Stopping, reason)
}

// fail ends a life because of err.
func (s *slot) fail(in *instance, err error) {
	if in.failure == nil {
		in.failure = err
	}
	if !in.stopping {
		s.stop(in, ErrStop, "failed: "+err.Error())
	}
}

// endedByItself notes a failure that has ended the life already.
func (s *slot) endedByItself(in *instance) {
	in.failure = in.runErr
	if in.failure == nil {
		in.failure = errors.New("the controller ended by itself")
	}
	in.stop(ErrStop, s.o.Clock.Now())
}

// bury forgets a life whose last goroutine has ended.
func (s *slot) bury(in *instance, now time.Time) {
	in.release()
	s.in = nil
	s.setLife(nil)
	s.setLossStuck(false)
	switch {
	case in.failure != nil:
		s.failures++
		s.failed = in.failure
		wait := s.backoff()
		s.retryAt = now.Add(wait)
		s.logFailure("Controller failed", in.failure, "failures", s.failures, "retryAfter", wait)
		s.setLastError(in.failure)
		s.setFailing(in.failure)
	case in.runErr != nil && !wantedEnd(in.runErr):
		s.logFailure("Controller ended with an error", in.runErr)
		s.setLastError(in.runErr)
	}
}

// wantedEnd tells whether err says no more than that the life was told to end.
func wantedEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, ErrStop) || errors.Is(err, ErrLeadershipLost)
}

func (s *slot) logFailure(message string, err error, args ...any) {
	args = append(args, "err", err)
	var panicked *PanicError
	if errors.As(err, &panicked) {
		args = append(args, "stack", string(panicked.Stack))
	}
	s.logger.Error(message, args...)
}

// backoff is BackoffMin × 2^(failures-1), at most BackoffMax.
func (s *slot) backoff() time.Duration {
	wait := s.o.BackoffMin
	for range s.failures - 1 {
		if wait *= 2; wait >= s.o.BackoffMax {
			return s.o.BackoffMax
		}
	}
	return min(wait, s.o.BackoffMax)
}

// stepStopping is for a life that is to end.
func (s *slot) stepStopping(in *instance, now time.Time) progress {
	if in.led && in.term != s.d.term && in.lostAt.IsZero() {
		in.lose(now)
	}
	drained := in.stopSince.Add(s.d.drainTimeout())
	if in.lostAt.IsZero() && now.Before(drained) {
		return progress{wake: drained}
	}
	stuckAt := drained.Add(s.o.StopGrace)
	if in.lostAt.IsZero() {
		in.cancelWork(ErrDrainTimeout)
	} else {
		stuckAt = in.lostAt.Add(s.o.StopGrace)
	}
	if now.Before(stuckAt) {
		return progress{wake: stuckAt}
	}
	s.publish(Stuck, s.whyStuck(in))
	if !in.lostAt.IsZero() {
		s.setLossStuck(true)
	}
	return progress{settled: true, ended: s.d.final}
}

func (s *slot) whyStuck(in *instance) string {
	after := "after reload.drainTimeout"
	if !in.lostAt.IsZero() {
		after = "after " + ErrLeadershipLost.Error()
	}
	switch {
	case in.life == nil:
		return "is still being made " + after
	case in.runEnded:
		return "still applies live fields " + after
	}
	if status := in.life.Work(); status.LongestKey != "" {
		return fmt.Sprintf("still reconciles %s %s", status.LongestKey, after)
	}
	return "has not ended " + after
}

// stepAlive is for a life that is to go on.
func (s *slot) stepAlive(in *instance, now time.Time) progress {
	if in.life == nil {
		return progress{}
	}
	if in.cfg != s.d.cfg && in.applying == nil {
		s.adjust(in)
		if in.stopping {
			return s.stepStopping(in, now)
		}
	}
	if s.d.leading && !in.led {
		if p, mine := s.awaitTurn(now); !mine {
			return p
		}
		in.letLead(s.d.term)
	}
	adjusted := in.applying == nil
	switch {
	case !in.led:
		s.publish(Standby, "is ready to take over")
		return progress{settled: adjusted, wake: now.Add(standbyCheck)}
	case in.readyAt.IsZero():
		s.publish(Starting, "waits for its caches")
		return progress{}
	}
	s.publish(Running, "")
	if s.failures > 0 {
		healthy := in.readyAt.Add(s.o.HealthyAfter)
		if now.Before(healthy) {
			return progress{settled: adjusted, wake: healthy}
		}
		s.failures = 0
	}
	return progress{settled: adjusted}
}

// adjust hands the life a configuration that needs no restart.
func (s *slot) adjust(in *instance) {
	delta := compare(s.descriptor, in.cfg, s.d.cfg)
	in.cfg = s.d.cfg
	section := in.cfg.Controllers.Sections[s.descriptor.Name()]
	if len(delta.resize) > 0 {
		err := contain("resizing", func() error {
			in.life.Resize(section.Base().Workers)
			return nil
		})
		if err != nil {
			s.fail(in, err)
			return
		}
	}
	if len(delta.live) > 0 {
		in.applyLive(section)
	}
}
