package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// recorder is a log that tests read.
type recorder struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *recorder) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// lines returns what was logged since the last call, in a form that is easy to compare.
func (r *recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.buf.String()
	r.buf.Reset()
	text = strings.NewReplacer("level=", "", "msg=", "", `"`, "").Replace(text)
	return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return s == "" })
}

// expect fails unless exactly one line was logged since the last call, with all these parts.
func (r *recorder) expect(t *testing.T, parts ...string) {
	t.Helper()
	lines := r.lines()
	if len(lines) != 1 {
		t.Errorf("%d lines were logged, want one:\n%s", len(lines), strings.Join(lines, "\n"))
		return
	}
	for _, part := range parts {
		if !strings.Contains(lines[0], part) {
			t.Errorf("log line %q lacks %q", lines[0], part)
		}
	}
}

func mustDrain(t *testing.T, g *Group) {
	t.Helper()
	if err := g.Drain(context.Background()); err != nil {
		t.Errorf("drain: %v", err)
	}
}

func TestKeysAddedBeforeStartWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		g := NewGroup(GroupOptions{Logger: quiet})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(_ context.Context, key string) (Result, error) {
			got = append(got, key)
			return Result{}, nil
		}})
		q.AddAfter("late", time.Minute)
		q.AddEvent("initial", true)
		q.AddEvent("live", false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := g.Status(); len(got) != 0 || s.Depth != 2 || s.Oldest != 10*time.Second || s.Wanted != 0 || s.Running != 0 {
			t.Errorf("before start: reconciled %v, status %+v", got, s)
		}
		if s := g.Queues(); len(s) != 1 || s[0].Name != "q" || s[0].Initial != 1 {
			t.Errorf("queues: %+v", s)
		}
		g.Start(t.Context(), 1)
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"live", "initial", "late"}; !slices.Equal(got, want) {
			t.Errorf("reconciled %v, want %v", got, want)
		}
		mustDrain(t, g)
	})
}

func TestAGroupThatNeverStartedIsDrained(t *testing.T) {
	g := NewGroup(GroupOptions{})
	q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(context.Context, string) (Result, error) {
		t.Error("reconciled")
		return Result{}, nil
	}})
	q.Add("a")
	mustDrain(t, g)
	g.Start(t.Context(), 5) // too late
	late := NewQueue(g, Options[string]{Name: "late", Reconcile: q.options.Reconcile})
	late.Add("b")
	if s := g.Status(); s.Running != 0 || s.Busy != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestAQueueMadeAfterStartWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(GroupOptions{Logger: quiet})
		g.Start(t.Context(), 3)
		var runs atomic.Int64
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(context.Context, string) (Result, error) {
			runs.Add(1)
			return Result{}, nil
		}})
		q.Add("a")
		synctest.Wait()
		if runs.Load() != 1 || g.Status().Wanted != 3 {
			t.Errorf("%d runs, status %+v", runs.Load(), g.Status())
		}
		mustDrain(t, g)
	})
}

func TestDelayedAdditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		g := NewGroup(GroupOptions{Logger: quiet})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(context.Context, string) (Result, error) {
			at = append(at, time.Since(start))
			if len(at) == 1 {
				return Result{RequeueAfter: time.Hour}, nil
			}
			return Result{}, nil
		}})
		g.Start(t.Context(), 1)
		q.AddAfter("a", time.Minute)
		q.AddAfter("a", time.Second) // the earliest counts
		q.AddAfter("a", time.Hour)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if want := []time.Duration{time.Second, time.Second + time.Hour}; !slices.Equal(at, want) {
			t.Errorf("reconciled at %v, want %v", at, want)
		}
		mustDrain(t, g)
	})
}

func TestResizeUnderATenThousandKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 10_000
		var mu sync.Mutex
		runs := map[int]int{}
		busy := map[int]bool{}
		most, limit := 0, 1
		g := NewGroup(GroupOptions{Logger: quiet})
		q := NewQueue(g, Options[int]{Name: "q", Reconcile: func(ctx context.Context, key int) (Result, error) {
			mu.Lock()
			if busy[key] {
				t.Errorf("key %d runs twice at once", key)
			}
			busy[key] = true
			if len(busy) > limit {
				t.Errorf("%d reconciles at once with %d workers", len(busy), limit)
			}
			most = max(most, len(busy))
			mu.Unlock()
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				t.Errorf("key %d was interrupted", key)
			}
			mu.Lock()
			defer mu.Unlock()
			delete(busy, key)
			runs[key]++
			return Result{}, nil
		}})
		for i := range keys {
			q.Add(i)
		}
		g.Start(t.Context(), 1)
		resize := func(n int, lowered bool) {
			g.Resize(n)
			if lowered {
				// Those that are too many finish their key first.
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			mu.Lock()
			defer mu.Unlock()
			limit, most = n, 0
		}
		sawBusy := func(want int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if most != want {
				t.Errorf("at most %d reconciles at once, want %d", most, want)
			}
		}
		time.Sleep(995 * time.Millisecond)
		sawBusy(1)

		mu.Lock()
		limit = 50
		mu.Unlock()
		resize(50, false)
		synctest.Wait()
		if s := g.Status(); s.Busy != 50 || s.Running != 50 || s.Wanted != 50 {
			t.Errorf("after growing: %+v, want 50 busy at once", s)
		}
		time.Sleep(time.Second)
		sawBusy(50)

		g.Resize(3)
		synctest.Wait()
		if s := g.Status(); s.Busy != 50 || s.Running != 50 || s.Wanted != 3 {
			t.Errorf("just after shrinking: %+v, want 50 finishing their key", s)
		}
		resize(3, true)
		if s := g.Status(); s.Busy != 3 || s.Running != 3 || s.Wanted != 3 {
			t.Errorf("after shrinking: %+v", s)
		}
		time.Sleep(time.Second)
		sawBusy(3)
		time.Sleep(time.Hour)
		synctest.Wait()
		for i := range keys {
			if runs[i] != 1 {
				t.Errorf("key %d was reconciled %d times, want once", i, runs[i])
			}
		}
		mustDrain(t, g)
	})
}

// A worker that waits for a key when the workers are reduced must not count
// when the next key comes.
func TestShrinkingWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(GroupOptions{Logger: quiet})
		q := NewQueue(g, Options[int]{Name: "q", Reconcile: func(context.Context, int) (Result, error) {
			time.Sleep(time.Second)
			return Result{}, nil
		}})
		g.Start(t.Context(), 3)
		q.Add(0)
		q.Add(1)
		synctest.Wait() // two are busy, the third waits for a key
		g.Resize(1)
		q.Add(2)
		synctest.Wait()
		if s := g.Status(); s.Busy != 2 {
			t.Errorf("%d busy, want the two from before", s.Busy)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := g.Status(); s.Busy != 1 || s.Running != 1 {
			t.Errorf("status %+v, want the third key alone", s)
		}
		mustDrain(t, g)
		if s := g.Status(); s.Busy != 0 || s.Running != 0 || s.Depth != 0 {
			t.Errorf("after drain: %+v", s)
		}
	})
}

// A key that was asked for while there were more workers is not handed out any
// more when the drain begins before it has one.
func TestDrainAfterShrinkingWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		g := NewGroup(GroupOptions{Logger: quiet})
		q := NewQueue(g, Options[int]{Name: "q", Reconcile: func(context.Context, int) (Result, error) {
			runs.Add(1)
			time.Sleep(time.Second)
			return Result{}, nil
		}})
		g.Start(t.Context(), 3)
		q.Add(0)
		q.Add(1)
		synctest.Wait()
		g.Resize(1)
		q.Add(2)
		synctest.Wait()
		mustDrain(t, g)
		if runs.Load() != 2 {
			t.Errorf("%d reconciles, want the two that were under way", runs.Load())
		}
	})
}

func TestFixedWorkersIgnoreTheConfiguredNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(GroupOptions{Logger: quiet})
		nothing := func(context.Context, int) (Result, error) { return Result{}, nil }
		NewQueue(g, Options[int]{Name: "fixed", FixedWorkers: 1, Reconcile: nothing})
		NewQueue(g, Options[int]{Name: "free", Reconcile: nothing})
		g.Resize(100) // before Start it does nothing
		g.Start(t.Context(), 5)
		g.Resize(7)
		if s := g.Queues(); s[0].Wanted != 1 || s[1].Wanted != 7 {
			t.Errorf("queues %+v", s)
		}
		if s := g.Status(); s.Wanted != 8 || s.Running != 8 {
			t.Errorf("status %+v, want the sum", s)
		}
		g.Resize(0)
		if s := g.Queues(); s[1].Wanted != 1 {
			t.Errorf("%d workers, want at least 1", s[1].Wanted)
		}
		mustDrain(t, g)
	})
}

func TestDrainLetsReconcilesFinishAndTakesNoFurtherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var finished []int
		var deleted []string
		g := NewGroup(GroupOptions{Logger: quiet, DeleteMetrics: func(name string) { deleted = append(deleted, name) }})
		q := NewQueue(g, Options[int]{Name: "q", Reconcile: func(ctx context.Context, key int) (Result, error) {
			select {
			case <-time.After(10 * time.Second):
				mu.Lock()
				defer mu.Unlock()
				finished = append(finished, key)
			case <-ctx.Done():
				t.Errorf("key %d was interrupted", key)
			}
			return Result{RequeueAfter: time.Millisecond}, nil
		}})
		for i := range 10 {
			q.Add(i)
		}
		g.Start(t.Context(), 2)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := g.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("drained after %v, want 10s", d)
		}
		if slices.Sort(finished); !slices.Equal(finished, []int{0, 1}) {
			t.Errorf("finished %v, want the two that were under way", finished)
		}
		q.Add(100)
		q.AddInitial(100)
		q.AddAfter(100, time.Second)
		q.AddRateLimited(100)
		time.Sleep(time.Hour)
		if len(finished) != 2 {
			t.Errorf("reconciled after drain: %v", finished)
		}
		if !slices.Equal(deleted, []string{"q"}) {
			t.Errorf("metrics deleted: %v, want q once", deleted)
		}
		select {
		case <-g.Done():
		default:
			t.Error("Done is not closed after Drain")
		}
		mustDrain(t, g) // again
	})
}

func TestDrainCancelsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &recorder{}
		g := NewGroup(GroupOptions{Logger: log.logger()})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(ctx context.Context, key string) (Result, error) {
			<-ctx.Done()
			return Result{}, fmt.Errorf("get pod: %w", ctx.Err())
		}})
		q.Add("a")
		g.Start(t.Context(), 1)
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := g.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("drained after %v, want 3s", d)
		}
		if s := g.Status(); s.LastError != "" || len(log.lines()) != 0 {
			t.Errorf("own cancellation counts as an error: %q, log %v", s.LastError, log.lines())
		}
	})
}

func TestEndOfTheStartContextCancelsAtOnce(t *testing.T) {
	for range 50 { // what might take a key at that instant does so now and then only
		synctest.Test(t, cancelAtOnce)
	}
}

func cancelAtOnce(t *testing.T) {
	g := NewGroup(GroupOptions{Logger: quiet})
	cause := errors.New("leadership lost")
	var got []error
	q := NewQueue(g, Options[int]{Name: "q", Reconcile: func(ctx context.Context, key int) (Result, error) {
		<-ctx.Done()
		got = append(got, context.Cause(ctx))
		return Result{}, nil
	}})
	for i := range 10 {
		q.Add(i)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	g.Start(ctx, 1)
	synctest.Wait()
	cancel(cause)
	synctest.Wait()
	if len(got) != 1 || !errors.Is(got[0], cause) {
		t.Errorf("reconciles ended with %v, want one with the cause", got)
	}
	if s := g.Status(); s.Busy != 0 || s.Depth != 9 || s.Running != 0 {
		t.Errorf("status %+v, want nothing running and the other keys not taken", s)
	}
	mustDrain(t, g)
}

func TestDrainNamesStuckKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var deleted atomic.Int64
		g := NewGroup(GroupOptions{Logger: quiet, DeleteMetrics: func(string) { deleted.Add(1) }})
		q := NewQueue(g, Options[ObjectName]{Name: "q", Reconcile: func(ctx context.Context, key ObjectName) (Result, error) {
			if key.Name == "stuck" {
				<-release
			}
			<-ctx.Done()
			return Result{}, ctx.Err()
		}})
		q.Add(ObjectName{Namespace: "ns", Name: "stuck"})
		g.Start(t.Context(), 2)
		synctest.Wait()
		time.Sleep(time.Minute)
		q.Add(ObjectName{Namespace: "ns", Name: "fine"})
		synctest.Wait()
		if s := g.Status(); s.Longest != time.Minute || s.LongestKey != "ns/stuck" {
			t.Errorf("status %+v", s)
		}
		if keys := g.RunningKeys(0); len(keys) != 2 || keys[0].Key != "ns/stuck" || keys[0].For != time.Minute {
			t.Errorf("running keys %v", keys)
		}
		if keys := g.RunningKeys(time.Second); len(keys) != 1 {
			t.Errorf("keys running for a second: %v", keys)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := g.Drain(ctx)
		var stuck *StuckError
		if !errors.As(err, &stuck) || len(stuck.Keys) != 1 || stuck.Keys[0].Key != "ns/stuck" {
			t.Fatalf("drain: %v", err)
		}
		if want := "reconciles that ignore their cancelled context: q ns/stuck (for 1m15s)"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if d := time.Since(start); d != 15*time.Second {
			t.Errorf("drain took %v, want 10s and 5s", d)
		}
		if deleted.Load() != 0 {
			t.Error("metrics were deleted while a reconcile still runs")
		}
		close(release)
		<-g.Done()
		mustDrain(t, g)
		if deleted.Load() != 1 {
			t.Errorf("metrics were deleted %d times", deleted.Load())
		}
	})
}

func TestPanicFailsTheGroupOnce(t *testing.T) {
	tests := map[string]struct {
		reconcile func()
		value     any
	}{
		"panic":     {func() { panic("boom") }, "boom"},
		"nil panic": {func() { panic(nil) }, nil}, //nolint:govet // on purpose
		"Goexit":    {runtime.Goexit, errGoexit},
		"runtime error": {func() {
			_ = at([]int{}, 1)
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &recorder{}
				finished := 0
				g := NewGroup(GroupOptions{Logger: log.logger()})
				q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(ctx context.Context, key string) (Result, error) {
					if key == "bad" {
						test.reconcile()
					}
					time.Sleep(time.Second)
					finished++
					return Result{}, nil
				}})
				q.Add("good")
				q.Add("bad")
				q.Add("next")
				g.Start(t.Context(), 2)
				err := <-g.Failed()
				var panicked *PanicError
				if !errors.As(err, &panicked) || panicked.Key != "bad" || panicked.Queue != "q" {
					t.Fatalf("failed with %v", err)
				}
				if test.value != nil && panicked.Value != test.value {
					t.Errorf("value %v, want %v", panicked.Value, test.value)
				}
				if name != "Goexit" && !bytes.Contains(panicked.Stack, []byte("TestPanicFailsTheGroupOnce")) {
					t.Errorf("the stack does not show where it panicked:\n%s", panicked.Stack)
				}
				if want := "queue q: reconcile of bad panicked: "; !strings.HasPrefix(err.Error(), want) {
					t.Errorf("error %q", err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if finished != 1 {
					t.Errorf("%d others were finished, want the one under way", finished)
				}
				log.expect(t, "ERROR Reconcile panicked", "key=bad")
				select {
				case err := <-g.Failed():
					t.Errorf("failed again: %v", err)
				default:
				}
				mustDrain(t, g)
			})
		})
	}
}

func TestFailuresAreRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &recorder{}
		start := time.Now()
		var at []time.Duration
		g := NewGroup(GroupOptions{Logger: log.logger()})
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(context.Context, string) (Result, error) {
			at = append(at, time.Since(start))
			switch len(at) {
			case 1, 2, 3:
				return Result{RequeueAfter: time.Nanosecond}, errors.New("no luck") // does not defeat the back-off
			case 4:
				return Result{}, apierrors.NewConflict(pods, "a", errors.New("modified"))
			case 5:
				return Result{}, fmt.Errorf("create: %w", Overtaken(apierrors.NewAlreadyExists(pods, "a")))
			case 6:
				return Result{RequeueAfter: time.Second}, nil // success starts over
			case 7:
				return Result{}, errors.New("again")
			}
			return Result{}, nil
		}})
		q.Add("ns/a")
		g.Start(t.Context(), 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		ms := time.Millisecond
		want := []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms, 1155 * ms, 1160 * ms}
		if !slices.Equal(at, want) {
			t.Errorf("reconciled at %v, want %v", at, want)
		}
		lines := log.lines()
		if len(lines) != 4 {
			t.Fatalf("%d lines, want one per failure where nobody was faster: %v", len(lines), lines)
		}
		if want := "ERROR Reconcile failed queue=q key=ns/a err=no luck failures=3"; lines[2] != want {
			t.Errorf("log line %q, want %q", lines[2], want)
		}
		if s := g.Status(); s.LastError != "ns/a: again" || !s.LastErrorAt.Equal(start.Add(1155*ms)) {
			t.Errorf("last error %q at %v", s.LastError, s.LastErrorAt)
		}
		mustDrain(t, g)
	})
}

func TestSlowRetryAfterMaxRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		g := NewGroup(GroupOptions{Logger: quiet})
		q := NewQueue(g, Options[string]{Name: "q", MaxRetries: 2, Reconcile: func(context.Context, string) (Result, error) {
			at = append(at, time.Since(start).Round(time.Second))
			return Result{}, errors.New("no luck")
		}})
		q.Add("a")
		g.Start(t.Context(), 1)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if want := []time.Duration{0, 0, 0, 5 * time.Minute, 10 * time.Minute}; !slices.Equal(at, want) {
			t.Errorf("reconciled at %v, want %v", at, want)
		}
		mustDrain(t, g)
	})
}

// What becomes due is not slept through while the key fails for another reason.
func TestRequeueAfterAnError(t *testing.T) {
	for name, test := range map[string]struct{ after, want time.Duration }{
		"sooner than the slow retry": {10 * time.Second, 10 * time.Second},
		"later than it":              {time.Hour, defaultSlowRetry},
		"too soon":                   {time.Millisecond, failedRequeueMin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at []time.Duration
				g := NewGroup(GroupOptions{Logger: quiet})
				q := NewQueue(g, Options[string]{Name: "q", MaxRetries: 1, Reconcile: func(context.Context, string) (Result, error) {
					at = append(at, time.Since(start).Round(time.Second))
					return Result{RequeueAfter: test.after}, errors.New("no luck")
				}})
				q.Add("a")
				g.Start(t.Context(), 1)
				time.Sleep(2*test.want + time.Second)
				synctest.Wait()
				if want := []time.Duration{0, 0, test.want, 2 * test.want}; !slices.Equal(at, want) {
					t.Errorf("reconciled at %v, want %v", at, want)
				}
				mustDrain(t, g)
			})
		})
	}
}

// Random additions from several sides, resizes and a drain at a random moment.
func TestRandomUse(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { randomUse(t, seed) })
	}
}

func randomUse(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	const keys = 40
	var mu sync.Mutex
	busy := map[int]bool{}
	added := map[int]int{}   // additions before the key's last reconcile began do not count
	handled := map[int]int{} // additions seen by the last reconcile
	failures := map[int]int{}
	draining := false
	var seen fakeCache
	version := 0
	g := NewGroup(GroupOptions{Logger: quiet, Marks: recordWrites, Reached: seen.reached})
	var q *Queue[int]
	q = NewQueue(g, Options[int]{Name: "q", Reconcile: func(ctx context.Context, key int) (Result, error) {
		mu.Lock()
		if busy[key] {
			t.Errorf("seed %d: key %d runs twice at once", seed, key)
		}
		if draining {
			t.Errorf("seed %d: key %d was taken after the drain began", seed, key)
		}
		busy[key] = true
		handled[key] = added[key]
		pause := time.Duration(random.IntN(30)) * time.Millisecond
		outcome := random.IntN(10)
		version++
		mine := version
		mu.Unlock()
		time.Sleep(pause)
		mu.Lock()
		defer mu.Unlock()
		delete(busy, key)
		switch {
		case outcome == 0 && failures[key] < 5:
			failures[key]++
			return Result{}, errors.New("no luck")
		case outcome == 1:
			added[key]++
			return Result{RequeueAfter: time.Duration(1+random.IntN(20)) * time.Millisecond}, nil
		case outcome == 2:
			write(ctx, pods, mine)
		case outcome == 3:
			added[key]++
			q.Add(key) // while it is being reconciled
		}
		return Result{}, nil
	}})
	g.Start(t.Context(), 1+int(seed%5))

	stop := make(chan struct{})
	var sides sync.WaitGroup
	sides.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(7 * time.Millisecond):
				mu.Lock()
				seen.reach(pods, version)
				mu.Unlock()
			}
		}
	})
	for side := range 3 {
		choice := rand.New(rand.NewPCG(seed, uint64(side)+2))
		sides.Go(func() {
			for range 100 {
				key := choice.IntN(keys)
				mu.Lock()
				added[key]++
				mu.Unlock()
				switch choice.IntN(5) {
				case 0:
					q.AddInitial(key)
				case 1:
					q.AddAfter(key, time.Duration(choice.IntN(50))*time.Millisecond)
				case 2:
					q.AddRateLimited(key)
				default:
					q.Add(key)
				}
				if choice.IntN(10) == 0 {
					g.Resize(1 + choice.IntN(20))
				}
				time.Sleep(time.Duration(choice.IntN(5)) * time.Millisecond)
			}
			if side == 0 {
				close(stop)
				seen.reach(pods, 1<<30) // the cache has caught up, everything settles
				time.Sleep(10 * time.Minute)
			}
		})
	}
	early := seed%2 == 0
	if early {
		time.Sleep(time.Duration(seed*seed%300) * time.Millisecond)
	} else {
		sides.Wait()
		synctest.Wait()
		for key, n := range added {
			if handled[key] != n {
				t.Errorf("seed %d: key %d was lost: %d of %d additions were seen", seed, key, handled[key], n)
			}
		}
		if s := g.Status(); s.Depth != 0 || s.Busy != 0 {
			t.Errorf("seed %d: not settled: %+v", seed, s)
		}
		q.marks.sweep() // of keys that wrote and were not needed again
		if len(q.lanes.noted) != 0 || len(q.marks.byKey) != 0 {
			t.Errorf("seed %d: left behind: %d notes, %d marks", seed, len(q.lanes.noted), len(q.marks.byKey))
		}
	}
	drained := make(chan error)
	go func() { drained <- g.Drain(context.Background()) }()
	synctest.Wait()
	mu.Lock()
	draining = true
	mu.Unlock()
	if err := <-drained; err != nil {
		t.Errorf("seed %d: drain: %v", seed, err)
	}
	if len(busy) != 0 {
		t.Errorf("seed %d: still busy after drain: %v", seed, busy)
	}
	sides.Wait()
}

func TestRefusedReconcilesAreTriedAgainWithoutComplaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := errors.New("may not write")
		var log bytes.Buffer
		g := NewGroup(GroupOptions{
			Name: "c", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Refused: func(err error) bool { return errors.Is(err, refusal) },
		})
		calls := 0
		q := NewQueue(g, Options[string]{Name: "q", Reconcile: func(context.Context, string) (Result, error) {
			if calls++; calls < 3 {
				return Result{}, fmt.Errorf("update: %w", refusal)
			}
			return Result{}, nil
		}})
		g.Start(t.Context(), 1)
		q.Add("a")
		time.Sleep(time.Second)
		synctest.Wait()
		if calls != 3 || g.Status().LastError != "" || log.Len() != 0 {
			t.Errorf("%d calls, last error %q, log %s", calls, g.Status().LastError, &log)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// at fails as a controller's mistake does.
func at(list []int, i int) int { return list[i] }
