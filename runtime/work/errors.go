package work

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Overtaken marks the error of a write that was refused because somebody else was
// faster, where the API server does not call that a conflict. The reconcile is
// repeated as after any error, but it is logged as a detail: nothing is wrong.
func Overtaken(err error) error { return overtakenError{err} }

type overtakenError struct{ error }

func (e overtakenError) Unwrap() error { return e.error }

func isOvertaken(err error) bool {
	var marked overtakenError
	return errors.As(err, &marked) || apierrors.IsConflict(err)
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
