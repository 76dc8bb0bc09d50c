package work

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTheNextLifeDoesFirstWhatALiveEventHadBrought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unfinished Unfinished
		pods := schema.GroupResource{Resource: "pods"}
		behind := true
		var done []string
		life := func(reconcile Reconciler[string]) (*Group, *Queue[string]) {
			g := NewGroup(GroupOptions{
				Logger: quiet, Unfinished: &unfinished,
				Marks: func(ctx context.Context) (context.Context, func() map[schema.GroupResource]string) {
					return ctx, func() map[schema.GroupResource]string { return map[schema.GroupResource]string{pods: "7"} }
				},
				Reached: func(schema.GroupResource, string) bool { return !behind },
			})
			return g, NewQueue(g, Options[string]{Name: "q", Reconcile: reconcile})
		}

		g, q := life(func(ctx context.Context, key string) (Result, error) {
			if key == "cut off" {
				<-ctx.Done()
				return Result{}, ctx.Err()
			}
			return Result{}, nil
		})
		g.Start(t.Context(), 1)
		q.Add("waits for its cache")
		q.Add("waits for nothing")
		synctest.Wait()
		q.Add("waits for its cache")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		q.Add("cut off")
		synctest.Wait()
		q.Add("waits for a worker")
		for i := range 20 {
			q.AddInitial("initial " + strconv.Itoa(i))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Drain(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}

		behind = false
		g, q = life(func(_ context.Context, key string) (Result, error) {
			done = append(done, key)
			return Result{}, nil
		})
		for i := range 20 {
			q.AddInitial("initial " + strconv.Itoa(i))
		}
		for _, key := range []string{"waits for nothing", "waits for its cache", "waits for a worker", "cut off"} {
			q.AddInitial(key)
		}
		g.Start(t.Context(), 1)
		synctest.Wait()
		first := slices.Clone(done[:3])
		slices.Sort(first)
		if want := []string{"cut off", "waits for a worker", "waits for its cache"}; len(done) != 24 || !slices.Equal(first, want) {
			t.Errorf("order %v, want %v first", done, want)
		}
		mustDrain(t, g)

		// A life that has done everything leaves nothing.
		if len(unfinished.byQueue) > 0 {
			t.Errorf("remembered: %v", unfinished.byQueue)
		}
	})
}

// The key of an object that is gone comes by no list. Lives that never start, as
// that of a standby, pass it on.
func TestTheNextLifeDoesWhatNoListBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unfinished Unfinished
		var done []string
		life := func(reconcile Reconciler[string]) (*Group, *Queue[string]) {
			g := NewGroup(GroupOptions{Logger: quiet, Unfinished: &unfinished})
			return g, NewQueue(g, Options[string]{Name: "q", Reconcile: reconcile})
		}
		do := func(_ context.Context, key string) (Result, error) {
			done = append(done, key)
			return Result{}, nil
		}

		finish := make(chan struct{})
		g, q := life(func(_ context.Context, key string) (Result, error) {
			switch key {
			case "has failed":
				return Result{}, errors.New("no")
			case "runs":
				<-finish
			}
			return Result{}, nil
		})
		g.Start(t.Context(), 1)
		q.Add("has failed")
		synctest.Wait()
		q.Add("runs")
		synctest.Wait()
		q.Add("waits for a worker")
		q.AddInitial("of a list")
		drained := make(chan error)
		go func() { drained <- g.Drain(t.Context()) }()
		synctest.Wait()
		q.Add("during the drain")
		q.AddInitial("of a list during the drain")
		close(finish)
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		q.Add("after the drain")
		q.AddInitial("of a list after the drain")

		g, q = life(do)
		mustDrain(t, g)
		q.Add("of the life that never started")

		g, _ = life(do)
		g.Start(t.Context(), 1)
		synctest.Wait()
		slices.Sort(done)
		want := []string{"after the drain", "during the drain", "has failed", "of the life that never started", "waits for a worker"}
		if !slices.Equal(done, want) {
			t.Errorf("done %v, want %v", done, want)
		}
		mustDrain(t, g)
		if len(unfinished.byQueue) > 0 {
			t.Errorf("remembered: %v", unfinished.byQueue)
		}
	})
}

// A key that has failed and then succeeded is done, and one that panics is not
// done again by the next life on its own account.
func TestTheNextLifeIsToldOfNothingThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unfinished Unfinished
		tries := map[string]int{}
		g := NewGroup(GroupOptions{Logger: quiet, Unfinished: &unfinished})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(_ context.Context, key string) (Result, error) {
			tries[key]++
			switch {
			case tries[key] == 1:
				return Result{}, errors.New("no")
			case key == "panics":
				panic(key)
			}
			return Result{}, nil
		}})
		g.Start(t.Context(), 1)
		q.Add("succeeds")
		time.Sleep(time.Second)
		q.Add("panics")
		if err := <-g.Failed(); err == nil {
			t.Error("no failure is told of")
		}
		mustDrain(t, g)
		if len(unfinished.byQueue) > 0 {
			t.Errorf("remembered: %v", unfinished.byQueue)
		}
	})
}
