package supervisor

import (
	"fmt"
	"time"
)

// publish makes state and reason visible. A change of state is logged and reported.
func (s *slot) publish(state State, reason string) {
	s.mu.Lock()
	from := s.published.State
	s.published.Reason = reason
	if from == state {
		s.mu.Unlock()
		return
	}
	s.published.State, s.published.Since = state, s.o.Clock.Now()
	switch state {
	case Running, Standby, Disabled, Unavailable:
		s.failing = nil
	}
	s.mu.Unlock()
	log := s.logger.Info
	if state == Stuck {
		log = s.logger.Error
	}
	log("Controller is "+string(state), "was", from, "reason", reason)
	s.o.OnStateChange(s.descriptor.Name(), from, state, reason)
}

// setLossStuck notes whether the life has outlived the loss of leadership.
func (s *slot) setLossStuck(stuck bool) {
	s.mu.Lock()
	changed := s.lossStuck != stuck
	s.lossStuck = stuck
	reason := s.published.Reason
	s.mu.Unlock()
	if changed && stuck {
		s.o.OnStateChange(s.descriptor.Name(), Stuck, Stuck, reason)
	}
}

func (s *slot) stuckAfterLoss() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lossStuck
}

func (s *slot) setLife(life Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = life
}

func (s *slot) life() Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *slot) setFailing(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
}

// failure returns what the controller has not recovered from yet.
func (s *slot) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

func (s *slot) setLastError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published.LastError = err.Error()
}

// status asks the life without holding the lock.
func (s *slot) status() Status {
	s.mu.Lock()
	status, life := s.published, s.current
	s.mu.Unlock()
	if life == nil {
		return status
	}
	status.Work = life.Work()
	status.Informers = life.Informers()
	if status.Work.LastError != "" {
		status.LastError = status.Work.LastError
	}
	return status
}

// Healthy returns why a controller does not do its work, nil when it does or need not.
func (s *Supervisor) Healthy(name string) error {
	status, ok := s.Lookup(name)
	if !ok {
		return fmt.Errorf("no such controller: %s", name)
	}
	lasted := s.o.Clock.Since(status.Since)
	switch status.State {
	case Failed, Stuck:
		return fmt.Errorf("%s since %s: %s", status.State, status.Since.UTC().Format(time.RFC3339), status.Reason)
	case Starting, Waiting:
		if err := s.slots[name].failure(); err != nil {
			return fmt.Errorf("is being started again after it failed: %w", err)
		}
		if status.State == Starting && lasted > s.o.HungAfter {
			return fmt.Errorf("has been starting for %s: %s", lasted.Round(time.Second), status.Reason)
		}
	}
	if status.Work.Longest > s.o.HungAfter {
		return fmt.Errorf("the reconcile of %s has not returned for %s", status.Work.LongestKey, status.Work.Longest.Round(time.Second))
	}
	return nil
}
