package election

import (
	"context"
	"log/slog"
	"slices"
)

// lead returns when the lease is lost or ctx ends, and OnLost has returned.
func (e *Elector) lead(ctx context.Context, current *attempt) error {
	e.o.Logger.Info("Leading", slog.String("lease", e.leaseName()), slog.String("identity", e.o.Identity))
	e.mu.Lock()
	e.leader, e.last = true, current.handover
	e.mu.Unlock()
	e.health.SetLeaderElection(current.elector)
	stopLeading := e.startLeading(ctx)

	attempts, err := e.keep(ctx, current)

	e.endTerm(attempts...)
	e.health.SetLeaderElection(nil)
	for _, a := range attempts {
		a.cancel()
		<-a.ended
	}
	e.o.Logger.Info("No longer leading", slog.String("lease", e.leaseName()), slog.String("identity", e.o.Identity))
	stopLeading()
	return err
}

// startLeading calls OnLead and returns what ends it.
func (e *Elector) startLeading(ctx context.Context) (stop func()) {
	// It must not end with ctx, before the fence is shut.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		e.o.OnLead(ctx)
	}()
	return func() {
		cancel()
		<-returned
		e.o.OnLost()
	}
}

// keep returns when the lease is lost or ctx ends, with all attempts of the
// term. When the timings change it lets a second attempt take over before it
// lets the first one go.
func (e *Elector) keep(ctx context.Context, current *attempt) ([]*attempt, error) {
	attempts := []*attempt{current}
	var next *attempt
	for {
		var nextAcquired, nextEnded chan struct{} // never, when there is no next
		if next != nil {
			nextAcquired, nextEnded = next.acquired, next.ended
		}
		select {
		case <-current.renewed:
			// The API server answers, and the current attempt will be quiet for
			// a while: now a second one does not get into its way.
			if t := e.timings(); next == nil && t != current.timings {
				var err error
				if next, err = e.newAttempt(t, true); err != nil {
					return attempts, err
				}
				gone := func(a *attempt) bool { return a != current && closed(a.ended) }
				attempts = append(slices.DeleteFunc(attempts, gone), next)
				next.start(ctx)
			}
			continue
		case <-nextAcquired:
		case <-nextEnded:
			if !closed(next.acquired) {
				next = nil // it is tried again after the next renewal
				continue
			}
		case <-current.ended:
			if next == nil || !closed(next.acquired) {
				return attempts, nil
			}
		}
		current.superseded.Store(true)
		current, next = next, nil
		e.health.SetLeaderElection(current.elector)
		e.o.Logger.Info("Changed the timings of the leader election",
			slog.Duration("leaseDuration", current.timings.lease),
			slog.Duration("renewDeadline", current.timings.deadline),
			slog.Duration("retryPeriod", current.timings.retry))
	}
}

// leadAlways leads without an election until ctx ends.
func (e *Elector) leadAlways(ctx context.Context) {
	e.o.Fence.OpenAlways()
	e.mu.Lock()
	e.leader = true
	e.mu.Unlock()
	stopLeading := e.startLeading(ctx)
	<-ctx.Done()
	e.endTerm()
	stopLeading()
}
