package sweep_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/sweep"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

const interval = time.Hour

var secrets = apischema.GroupResource{Resource: "secrets"}

// bench of a sweep over Secrets, in a bubble of synctest. A Secret is due when
// its label says why.
type bench struct {
	t     *testing.T
	store cache.Store
	group *work.Group
	sweep *sweep.Sweep[*corev1.Secret]
	log   bytes.Buffer

	mu sync.Mutex
	// refused deletions, by name.
	refused map[string]error
	// asked deletions, by name, and times of passes.
	asked  map[string]int
	passes []time.Duration
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		t: t, store: cache.NewStore(cache.MetaNamespaceKeyFunc), group: work.NewGroup(work.GroupOptions{Logger: slog.New(slog.DiscardHandler)}),
		refused: map[string]error{}, asked: map[string]int{},
	}
	began := time.Now()
	env := controller.Env{Logger: slog.New(slog.NewTextHandler(&b.log, nil)), Clock: clock.RealClock{}, Work: b.group}
	b.sweep = sweep.New(env, sweep.Options[*corev1.Secret]{
		Queue: "test", Objects: b.store, Interval: interval,
		Due: func(s *corev1.Secret, now time.Time) string {
			b.mu.Lock()
			defer b.mu.Unlock()
			if now.Sub(began) != time.Since(began) {
				t.Errorf("judged at %s", now)
			}
			if s.Name == "clock" {
				b.passes = append(b.passes, now.Sub(began))
			}
			return s.Labels["due"]
		},
		Delete: func(_ context.Context, s *corev1.Secret) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked[s.Name]++
			if err := b.refused[s.Name]; err != nil {
				return err
			}
			return b.store.Delete(s)
		},
	})
	t.Cleanup(func() {
		if err := b.group.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b.add("clock", "")
	return b
}

func (b *bench) start() {
	b.group.Start(b.t.Context(), 2)
	synctest.Wait()
}

func (b *bench) add(name, due string) *corev1.Secret {
	b.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{"due": due}}}
	if err := b.store.Add(s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// deletions asked for so far, by name.
func (b *bench) deletions(want map[string]int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !maps.Equal(b.asked, want) {
		b.t.Errorf("deletions %v, want %v", b.asked, want)
	}
}

// passed tells when there were passes, since the beginning.
func (b *bench) passed(want ...time.Duration) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.passes, want) {
		b.t.Errorf("passes at %v, want %v", b.passes, want)
	}
}

func TestWhatIsDueIsDeletedInEachPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add("fresh", "")
		b.add("old", "it is old")
		b.add("going", "it is old").DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if err := b.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "stranger"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.deletions(map[string]int{}) // the caches are not known to have synced
		b.start()
		b.deletions(map[string]int{"old": 1})
		b.add("fresh", "it is old now")
		time.Sleep(interval - time.Nanosecond)
		b.deletions(map[string]int{"old": 1})
		time.Sleep(2 * interval)
		b.deletions(map[string]int{"old": 1, "fresh": 1})
		b.passed(0, interval, 2*interval)
		synctest.Wait()
		if log := b.log.String(); strings.Count(log, "msg=Deleted") != 2 || !strings.Contains(log, `object=n/old`) || !strings.Contains(log, `reason="it is old now"`) {
			t.Errorf("log %s", log)
		}
	})
}

func TestAChangeMakesAPassAtOnceAndAnotherInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		time.Sleep(interval / 2)
		b.add("old", "it is old")
		for range 3 {
			b.sweep.Changed(2 * interval)
		}
		synctest.Wait()
		b.deletions(map[string]int{"old": 1})
		b.mu.Lock()
		b.passes = b.passes[:1]
		b.mu.Unlock()
		// The pass that was due before comes, too.
		time.Sleep(3 * interval)
		b.passed(0, interval, 3*interval)
	})
}

// What is gone, or was replaced or changed since it was judged, is no failure.
// Any other failure is repeated soon, and keeps no other object.
func TestADeletionThatFailsKeepsNoOther(t *testing.T) {
	forbidden := apierrors.NewForbidden(secrets, "a", errors.New("no rights"))
	for name, test := range map[string]struct {
		err    error
		failed bool
	}{
		"gone":          {apierrors.NewNotFound(secrets, "a"), false},
		"changed":       {apierrors.NewConflict(secrets, "a", errors.New("another UID")), false},
		"wrapped":       {fmt.Errorf("delete: %w", apierrors.NewNotFound(secrets, "a")), false},
		"refused":       {forbidden, true},
		"no answer":     {errors.New("connection lost"), true},
		"a proxy's 404": {apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", secrets, "a", "", 0, true), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for _, object := range []string{"a", "b", "c"} {
					b.add(object, "it is old")
				}
				b.refused["a"] = test.err
				b.start()
				status := b.group.Status()
				if failed := status.LastError != ""; failed != test.failed || failed && !strings.Contains(status.LastError, "delete n/a: "+test.err.Error()) {
					t.Errorf("last error %q", status.LastError)
				}
				want := map[string]int{"a": 1, "b": 1, "c": 1}
				b.deletions(want)
				b.mu.Lock()
				delete(b.refused, "a")
				b.mu.Unlock()
				time.Sleep(time.Second)
				if test.failed {
					want["a"]++
				}
				b.deletions(want)
				time.Sleep(interval)
				want["a"] = 2
				b.deletions(want)
			})
		})
	}
}

func TestManyFailuresAreOneError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 5 {
			name := fmt.Sprint("s-", i)
			b.add(name, "it is old")
			b.refused[name] = errors.New("refused")
		}
		b.start()
		status := b.group.Status()
		if !strings.Contains(status.LastError, "5 objects could not be deleted; the first: delete n/s-") {
			t.Errorf("last error %q", status.LastError)
		}
	})
}

// A pass ends between two deletions when its controller does.
func TestAPassEndsWithItsController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		deleted := 0
		group := work.NewGroup(work.GroupOptions{Logger: slog.New(slog.DiscardHandler)})
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		for i := range 5 {
			if err := store.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s-", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		sweep.New(controller.Env{Logger: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Work: group}, sweep.Options[*corev1.Secret]{
			Queue: "test", Objects: store, Interval: interval,
			Due: func(*corev1.Secret, time.Time) string { return "due" },
			Delete: func(context.Context, *corev1.Secret) error {
				if deleted++; deleted == 2 {
					cancel()
				}
				return nil
			},
		})
		group.Start(ctx, 1)
		synctest.Wait()
		if err := group.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if deleted != 2 {
			t.Errorf("%d deletions, want none after the end", deleted)
		}
	})
}
