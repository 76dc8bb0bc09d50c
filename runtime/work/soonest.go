package work

import "time"

// Soonest of two waits for Result.RequeueAfter, of which 0 is none.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
