package harness

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// clockPace is how much slower than real time a clock of NewClock goes on.
const clockPace = 10

// NewClock returns a clock for Options.Clock that begins at a time and that the
// test sets forward. It also goes on by itself, since the engine's short waits
// go by it too, but at a tenth of the pace of real time: a test that is slow
// does not run out of the time that it wants to tell apart.
func NewClock(t testing.TB, at time.Time) *clocktesting.FakeClock {
	t.Helper()
	clock := clocktesting.NewFakeClock(at)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case now := <-tick.C:
				clock.Step(now.Sub(last) / clockPace)
				last = now
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		<-done
	})
	return clock
}
