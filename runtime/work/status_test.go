package work

import (
	"context"
	"testing"
)

// A controller that is asked whether it has anything to do must not say no
// while a key is on its way from one of its places to the next.
func TestStatusMissesNoKeyOnItsWay(t *testing.T) {
	const rounds = 20_000
	g := NewGroup(GroupOptions{Logger: quiet})
	ended := make(chan struct{})
	round := 0
	var q *Queue[string]
	q = NewQueue(g, Options[string]{Name: "q", Reconcile: func(_ context.Context, key string) (Result, error) {
		if round++; round <= rounds {
			q.Add(key) // waits until this reconcile has ended
		} else {
			close(ended)
			<-t.Context().Done()
		}
		return Result{}, nil
	}})
	t.Cleanup(func() { mustDrain(t, g) })
	q.Add("key")
	g.Start(t.Context(), 2)
	for looking := true; looking; {
		select {
		case <-ended:
			looking = false
		default:
		}
		if s := g.Status(); s.Depth+s.Busy == 0 {
			t.Fatalf("nothing waits and nothing runs: %+v", s)
		}
	}
}
