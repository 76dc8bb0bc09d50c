package apiproxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// lagVariable makes what comes through every proxy of the process late, by up
// to its value, a duration. Unset or 0: nothing is.
const lagVariable = "TEST_LAG"

// One of lateWatches chunks of a watch is late, and one of lateAnswers to
// requests: what is late every time is late in the same order.
const (
	lateWatches = 4
	lateAnswers = 10
)

// lag is how late something comes at most.
type lag time.Duration

// Lag is how late each thing comes at most in this process, for tests that bound a time.
func Lag() (time.Duration, error) {
	value := os.Getenv(lagVariable)
	if value == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s is %q, want a duration such as 1s", lagVariable, value)
	}
	return d, nil
}

// of something of which one in so many is late; mostly 0.
func (l lag) of(oneIn int) time.Duration {
	if l <= 0 || rand.IntN(oneIn) > 0 {
		return 0
	}
	return rand.N(time.Duration(l))
}

// wait for a late answer, or until ctx ends.
func (l lag) wait(ctx context.Context) {
	d := l.of(lateAnswers)
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
