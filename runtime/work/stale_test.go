package work

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

var (
	pods   = schema.GroupResource{Resource: "pods"}
	events = schema.GroupResource{Resource: "events"}
)

// fakeCache is a fake of the informers' progress.
type fakeCache struct {
	mu sync.Mutex
	at map[schema.GroupResource]int
}

func (c *fakeCache) reach(resource schema.GroupResource, version int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[schema.GroupResource]int{}
	}
	c.at[resource] = max(c.at[resource], version)
}

func (c *fakeCache) reached(resource schema.GroupResource, version string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted, err := strconv.Atoi(version)
	return err != nil || c.at[resource] >= wanted
}

type writtenKey struct{}

// write is what a recording client does with a successful write.
func write(ctx context.Context, resource schema.GroupResource, version int) {
	ctx.Value(writtenKey{}).(map[schema.GroupResource]string)[resource] = strconv.Itoa(version)
}

func recordWrites(ctx context.Context) (context.Context, func() map[schema.GroupResource]string) {
	written := map[schema.GroupResource]string{}
	return context.WithValue(ctx, writtenKey{}, written), func() map[schema.GroupResource]string { return written }
}

func TestKeyWaitsUntilTheCacheHasSeenItsWrites(t *testing.T) {
	for _, failing := range []bool{false, true} {
		t.Run(fmt.Sprintf("failing=%t", failing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen fakeCache
				seen.reach(pods, 6)
				start := time.Now()
				var at []time.Duration
				stale := map[schema.GroupResource]int{}
				g := NewGroup(GroupOptions{Logger: quiet, Marks: recordWrites, Reached: seen.reached})
				q := NewQueue(g, Options[string]{
					Name: "q",
					Reconcile: func(ctx context.Context, key string) (Result, error) {
						at = append(at, time.Since(start))
						if len(at) == 1 {
							write(ctx, pods, 7)
							write(ctx, events, 0)
							if failing {
								return Result{}, fmt.Errorf("after the write")
							}
						}
						return Result{}, nil
					},
					OnStale: func(resource schema.GroupResource) { stale[resource]++ },
				})
				q.Add("a")
				g.Start(t.Context(), 2)
				synctest.Wait()
				q.Add("a")
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if len(at) != 1 {
					t.Fatalf("reconciled at %v on a cache that has not seen its write", at)
				}
				// Put off at 0, 5, 15, 35 and 75 ms; the next attempt is at 155 ms.
				if want := 5; !failing && stale[pods] != want {
					t.Errorf("put off %d times, want %d", stale[pods], want)
				}
				if stale[events] != 0 {
					t.Error("put off because of a resource whose cache is up to date")
				}
				seen.reach(pods, 7)
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				if len(at) != 2 || (!failing && at[1] != 155*time.Millisecond) {
					t.Errorf("reconciled at %v, want 0 and 155ms", at)
				}
				if len(q.marks.byKey) != 0 {
					t.Error("marks kept after they were reached")
				}
				mustDrain(t, g)
			})
		})
	}
}

func TestEventsDoNotLengthenTheWaitForTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen fakeCache
		var at []time.Duration
		start := time.Now()
		g := NewGroup(GroupOptions{Logger: quiet, Marks: recordWrites, Reached: seen.reached})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(ctx context.Context, key string) (Result, error) {
			at = append(at, time.Since(start))
			if len(at) == 1 {
				write(ctx, pods, 500)
			}
			return Result{}, nil
		}})
		q.Add("a")
		g.Start(t.Context(), 1)
		for i := range 500 {
			time.Sleep(10 * time.Microsecond)
			synctest.Wait()
			seen.reach(pods, i+1)
			q.Add("a")
		}
		synctest.Wait()
		if len(at) != 2 || at[1] != 5*time.Millisecond {
			t.Errorf("reconciled at %v, want 0s and with the event that brings the cache up to date at 5ms", at)
		}
		mustDrain(t, g)
	})
}

func TestEventsWithoutProgressDoNotLengthenTheWaitEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen fakeCache
		var at []time.Duration
		start := time.Now()
		g := NewGroup(GroupOptions{Logger: quiet, Marks: recordWrites, Reached: seen.reached})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(ctx context.Context, key string) (Result, error) {
			at = append(at, time.Since(start))
			if len(at) == 1 {
				write(ctx, pods, 1)
			}
			return Result{}, nil
		}})
		q.Add("a")
		g.Start(t.Context(), 1)
		for range 20 {
			time.Sleep(10 * time.Microsecond)
			synctest.Wait()
			q.Add("a")
		}
		time.Sleep(6 * time.Millisecond)
		seen.reach(pods, 1) // and no event tells so
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := 15*time.Millisecond + 10*time.Microsecond; len(at) != 2 || at[1] != want {
			t.Errorf("reconciled at %v, want the second time at %v", at, want)
		}
		mustDrain(t, g)
	})
}

// A wait for the cache and a delayed addition of the same key must not swallow each other.
func TestWaitForTheCacheAndDelayedAdditionsAreBothKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen fakeCache
		runs := 0
		g := NewGroup(GroupOptions{Logger: quiet, Marks: recordWrites, Reached: seen.reached})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(ctx context.Context, key string) (Result, error) {
			runs++
			if runs == 1 {
				write(ctx, pods, 1)
				return Result{RequeueAfter: 7 * time.Millisecond}, nil
			}
			return Result{}, nil
		}})
		g.Start(t.Context(), 1)
		q.Add("a")
		synctest.Wait()
		for range 20 {
			q.Add("a")
			time.Sleep(3 * time.Millisecond)
			synctest.Wait()
		}
		seen.reach(pods, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		if runs != 2 {
			t.Errorf("%d runs, want 2", runs)
		}
		mustDrain(t, g)
	})
}

func TestKeyIsReconciledAllTheSameWhenTheCacheStaysBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &recorder{}
		var at []time.Duration
		start := time.Now()
		never := func(schema.GroupResource, string) bool { return false }
		g := NewGroup(GroupOptions{Name: "deployment-controller", Logger: log.logger(), Marks: recordWrites, Reached: never})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(ctx context.Context, key string) (Result, error) {
			at = append(at, time.Since(start))
			if len(at) == 1 {
				write(ctx, pods, 42)
				return Result{RequeueAfter: time.Millisecond}, nil
			}
			return Result{}, nil
		}})
		q.Add("ns/a")
		g.Start(t.Context(), 1)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if got := log.lines(); len(got) != 0 {
			t.Errorf("logged too early: %v", got)
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if len(at) != 1 {
			t.Fatalf("reconciled at %v, too early", at)
		}
		log.expect(t, "INFO Still waiting for the cache to see the last writes of the key", "key=ns/a", "map[pods:42]",
			"controller=deployment-controller", "queue=q")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(at) != 2 || at[1] < 5*time.Minute || at[1] > 5*time.Minute+2*time.Second {
			t.Fatalf("reconciled at %v, want the second time after 5 minutes", at)
		}
		log.expect(t, "WARN Cache has not seen the last writes of the key, reconciling it all the same", "key=ns/a", "map[pods:42]")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(at) != 2 || len(log.lines()) != 0 {
			t.Errorf("after giving up: reconciled at %v, logged %v", at, log.lines())
		}
		mustDrain(t, g)
	})
}

func TestMarksOfKeysThatNeverComeBackAreDropped(t *testing.T) {
	var seen fakeCache
	m := newMarks[int](seen.reached, clock.RealClock{})
	const keys = 10_000
	for i := 1; i <= keys; i++ {
		m.record(i, map[schema.GroupResource]string{pods: strconv.Itoa(i)})
		seen.reach(pods, i-10) // the cache is ten writes behind
		if len(m.byKey) > sweepMin {
			t.Fatalf("%d marks are kept while 10 are unreached", len(m.byKey))
		}
	}
	for i := keys - 9; i <= keys; i++ {
		if v := m.check(i); len(v.unreached) != 1 || v.putOff != staleDelayMin {
			t.Errorf("key %d: %+v, want it put off", i, v)
		}
	}
}
