package main

import "runtime/debug"

// gcPercent lets the heap grow by half of what is live before garbage is
// collected, where Go's default is all of it. See docs/decisions/memory.md.
const gcPercent = 50

// limitGarbage leaves it to whoever has set GOGC or GOMEMLIMIT.
func limitGarbage(environment func(string) (string, bool)) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, ok := environment(name); ok {
			return
		}
	}
	debug.SetGCPercent(gcPercent)
}
