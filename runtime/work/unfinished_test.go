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
		// What the initial lists do not bring is not there any more.
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
