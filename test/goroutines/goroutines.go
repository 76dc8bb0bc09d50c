// Package goroutines finds those that tests leave behind.
package goroutines

import (
	"time"

	"go.uber.org/goleak"
)

// patience with goroutines that are about to end, on a machine that is busy.
const patience = time.Minute

// Left returns an error that describes the goroutines that are left after a
// while, apart from those that options exempt. Without any it returns soon.
func Left(options ...goleak.Option) error {
	end := time.Now().Add(patience)
	for {
		// It waits itself for half a second or so.
		if err := goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
