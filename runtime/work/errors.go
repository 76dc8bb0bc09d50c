package work

import (
	"fmt"
	"strings"
	"time"
)

// PanicError is a reconcile that panicked, or called runtime.Goexit.
type PanicError struct {
	Queue string
	Key   string
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("queue %s: reconcile of %s panicked: %v", e.Queue, e.Key, e.Value)
}

// RunningKey is a reconcile under way.
type RunningKey struct {
	Queue string
	Key   string
	For   time.Duration
}

// StuckError names the reconciles that do not end although they were cancelled.
type StuckError struct {
	Keys []RunningKey
}

func (e *StuckError) Error() string {
	var b strings.Builder
	b.WriteString("reconciles that ignore their cancelled context: ")
	for i, k := range e.Keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s (for %s)", k.Queue, k.Key, k.For.Round(time.Millisecond))
	}
	return b.String()
}
