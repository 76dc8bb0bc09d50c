package work

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
)

// The plain loop is what controllers do without an engine: workers that each
// take a key from a client-go queue. Both queues are fed before the clock starts.
func BenchmarkThroughput(b *testing.B) {
	for _, workers := range []int{1, 5, 50} {
		b.Run(fmt.Sprintf("plain/%d", workers), func(b *testing.B) {
			q := workqueue.NewTypedRateLimitingQueueWithConfig(
				workqueue.DefaultTypedControllerRateLimiter[int](), workqueue.TypedRateLimitingQueueConfig[int]{})
			for i := range b.N {
				q.Add(i)
			}
			b.ResetTimer()
			q.ShutDown()
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for {
						key, shutdown := q.Get()
						if shutdown {
							return
						}
						q.Forget(key)
						q.Done(key)
					}
				})
			}
			wg.Wait()
		})
		b.Run(fmt.Sprintf("group/%d", workers), func(b *testing.B) { benchmarkGroup(b, workers, GroupOptions{Logger: quiet}) })
		b.Run(fmt.Sprintf("group-with-marks/%d", workers), func(b *testing.B) {
			benchmarkGroup(b, workers, GroupOptions{Logger: quiet, Marks: recordWrites,
				Reached: func(schema.GroupResource, string) bool { return true }})
		})
	}
}

func benchmarkGroup(b *testing.B, workers int, o GroupOptions) {
	var left sync.WaitGroup
	left.Add(b.N)
	g := NewGroup(o)
	q := NewQueue(g, Options[int]{Name: "q", Reconcile: func(context.Context, int) (Result, error) {
		left.Done()
		return Result{}, nil
	}})
	for i := range b.N {
		q.Add(i)
	}
	b.ResetTimer()
	g.Start(b.Context(), workers)
	left.Wait()
	b.StopTimer()
	if err := g.Drain(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// Events that come in bursts for the same keys are the usual load of Add.
func BenchmarkAdd(b *testing.B) {
	g := NewGroup(GroupOptions{Logger: quiet})
	q := NewQueue(g, Options[int]{Name: "q", Reconcile: func(context.Context, int) (Result, error) { return Result{}, nil }})
	i := 0
	for b.Loop() {
		q.Add(i % 1000)
		i++
	}
	if err := g.Drain(context.Background()); err != nil {
		b.Fatal(err)
	}
}
