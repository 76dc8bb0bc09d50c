package election

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// timings of one elector.
type timings struct {
	lease, deadline, retry time.Duration
}

func timingsOf(c schema.LeaderElection) timings {
	return timings{c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration}
}

// check refuses what client-go's elector would refuse, and durations that a
// Lease, which counts whole seconds, cannot say.
func (t timings) check() error {
	switch jittered := time.Duration(leaderelection.JitterFactor * float64(t.retry)); {
	case t.lease < time.Second:
		return fmt.Errorf("leaderElection.leaseDuration: %s is too short, a Lease counts whole seconds", t.lease)
	case t.lease <= t.deadline:
		return fmt.Errorf("leaderElection.leaseDuration: %s must be longer than renewDeadline, %s", t.lease, t.deadline)
	case t.deadline <= jittered:
		return fmt.Errorf("leaderElection.renewDeadline: %s must be longer than 1.2 × retryPeriod, %s", t.deadline, jittered)
	case t.retry <= 0:
		return fmt.Errorf("leaderElection.retryPeriod: %s must be positive", t.retry)
	}
	return nil
}

// request is how long one request for the Lease may take, so that a hanging
// one leaves time for another before the deadline. The formula is client-go's.
func (t timings) request() time.Duration {
	return max(time.Second, t.deadline/2)
}

// fence is how long after the start of a successful write of the Lease this
// process may write. Others wait for the whole seconds that the Lease says,
// from when they saw it; a fifteenth, 1 s by default, is left for writes that
// are on their way and for clocks that run at different speeds.
func (t timings) fence() time.Duration {
	said := t.lease.Truncate(time.Second)
	return said - said/15
}
