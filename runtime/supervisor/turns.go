package supervisor

import "time"

// turns spaces the starts of controllers: the one that is to start next holds
// the turn until it may. It is a channel with a buffer of one, so that waiting for
// the turn is first come, first served, and giving it back never blocks.
type turns chan turn

// turn knows the last start.
type turn struct {
	// last is zero before the first start.
	last time.Time
	// jitter in [0, 1) is drawn once per start: the next one may follow after
	// interval × (1 + jitter), whatever the interval is by then.
	jitter float64
}

func newTurns() turns {
	t := make(turns, 1)
	t <- turn{}
	return t
}

// next is when the holder of the turn may start.
func (t turn) next(interval time.Duration) time.Time {
	if t.last.IsZero() {
		return time.Time{}
	}
	return t.last.Add(interval + time.Duration(t.jitter*float64(interval)))
}
