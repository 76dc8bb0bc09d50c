package election

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

const peer = "host_peer" // a kube-controller-manager

func TestFreeLeaseIsTakenAtOnceAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		start := time.Now()
		stop := c.run(t)
		settle(time.Second)
		if at := c.expect(t, "lead"); at.Sub(start) > 100*time.Millisecond {
			t.Errorf("led after %s, want at once", at.Sub(start))
		}
		settle(time.Minute)
		got := c.Status()
		if !got.Leader || got.Holder != "a" || got.Identity != "a" ||
			time.Since(got.RenewedAt) > 2*time.Second || got.AcquiredAt.Before(start) {
			t.Errorf("status %+v", got)
		}
		if left := time.Until(c.fence.Deadline()); left > 14*time.Second || left < 12*time.Second {
			t.Errorf("the fence is open for %s, want 12 to 14 s", left)
		}
		if _, ok := c.LastMarks(); ok {
			t.Error("marks of a leader that never was")
		}
		stop()
		c.expect(t, "lead", "lost")
		if c.fence.Allow() == nil {
			t.Error("the fence is open after the end")
		}
		if got := holder(s.current()); got != "a" {
			t.Errorf("the lease is held by %q, want it kept: the context ended without a release", got)
		}
		want := []string{"Normal LeaderElection a became leader", "Normal LeaderElection a stopped leading"}
		if got := c.recorded(); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		for i, w := range s.by("a")[1:] {
			if gap := w.at.Sub(s.by("a")[i].at); gap > 2100*time.Millisecond {
				t.Errorf("a gap of %s between renewals", gap)
			}
		}
	})
}

func TestStandbyTakesOverWhenTheLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.hold(peer, 15)
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		for range 100 {
			settle(2 * time.Second)
			s.hold(peer, 15)
		}
		last := time.Now()
		if requests := s.requests; requests > 3 {
			t.Errorf("%d requests in 200 s of standing by, want a get and a watch", requests)
		}
		settle(14900 * time.Millisecond)
		c.expect(t)
		if err := c.Check(nil); err != nil {
			t.Errorf("a standby is unhealthy: %v", err)
		}
		settle(200 * time.Millisecond)
		c.expect(t, "lead")
		if took := s.by("a")[0].at.Sub(last); took < 15*time.Second {
			t.Errorf("taken %s after the last renewal, want 15 s at least", took)
		}
		if got := c.Status(); got.Transitions != 2 {
			t.Errorf("transitions %d, want 2", got.Transitions)
		}
	})
}

func TestReleasedLeaseIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.hold(peer, 15)
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		settle(time.Minute / 6)
		s.hold("", 1)
		settle(100 * time.Millisecond)
		c.expect(t, "lead")
	})
}

// The holder of a deleted Lease goes on leading until its next renewal.
func TestDeletedLeaseIsNotTakenBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.hold(peer, 15)
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		settle(5 * time.Second)
		s.remove()
		settle(9 * time.Second)
		c.expect(t)
		settle(2 * time.Second)
		c.expect(t, "lead")
	})
}

func TestLeaderMakesADeletedLeaseAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		settle(5 * time.Second)
		s.remove()
		settle(3 * time.Second)
		c.expect(t, "lead")
		if got := holder(s.current()); got != "a" {
			t.Errorf("the lease is held by %q, want a", got)
		}
	})
}

func TestLeaseTakenAwayIsNoticedAndStoodForAgain(t *testing.T) {
	for name, thief := range map[string]string{"by another": peer, "by nobody": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				c := newCandidate(t, s, "a")
				c.lose = func() { pass(5 * time.Second) } // controllers stop
				defer c.run(t)()
				settle(5 * time.Second)
				s.hold(thief, 15)
				stolen := time.Now()
				settle(3 * time.Second)
				if at := c.expect(t, "lead", "lost"); at.Sub(stolen) > 2100*time.Millisecond {
					t.Errorf("noticed after %s, want within the retry period", at.Sub(stolen))
				}
				if c.Status().Leader {
					t.Error("status says that it leads")
				}
				settle(17 * time.Second)
				c.expect(t, "lead", "lost", "lead")
			})
		})
	}
}

func TestUnreachableServerEndsLeadershipInTime(t *testing.T) {
	faults := map[string]func(ctx context.Context, verb string) error{
		"hangs":   func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() },
		"refuses": func(context.Context, string) error { return errors.New("connection refused") },
	}
	for name, fault := range faults {
		for _, outage := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute} {
			t.Run(name+" for "+outage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &server{}
					c := newCandidate(t, s, "a")
					defer c.run(t)()
					settle(5 * time.Second)
					last := s.by("a")[len(s.by("a"))-1].at
					s.fail(fault)
					if outage == 5*time.Second {
						settle(outage)
						s.fail(nil)
						settle(10 * time.Second)
						c.expect(t, "lead") // never given up
						return
					}
					settle(time.Until(last.Add(13500 * time.Millisecond)))
					lost := c.expect(t, "lead", "lost")
					if after := lost.Sub(last); after > 14*time.Second || after < 10*time.Second {
						t.Errorf("given up %s after the last renewal, want 10 to 14 s", after)
					}
					settle(outage)
					s.fail(nil)
					back := time.Now()
					settle(11 * time.Second)
					if at := c.expect(t, "lead", "lost", "lead"); at.Sub(back) > 10*time.Second {
						t.Errorf("led again %s after the server was back", at.Sub(back))
					}
					if got := c.Status().Transitions; got != 0 {
						t.Errorf("transitions %d, want 0: nobody else held the lease", got)
					}
				})
			})
		}
	}
}

// A process that was stopped for longer than the lease finds it held, or held
// and released, by somebody else.
func TestStoppedLeaderHasLost(t *testing.T) {
	for name, now := range map[string]string{"held": peer, "released": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				c := newCandidate(t, s, "a")
				defer c.run(t)()
				settle(5 * time.Second)
				s.fail(func(context.Context, string) error { pass(40 * time.Second); return nil }) // stopped in a request
				settle(20 * time.Second)
				if c.fence.Allow() == nil {
					t.Error("the fence is open though the lease has expired")
				}
				s.hold(peer, 15)
				s.hold(now, 15)
				s.fail(nil)
				settle(25 * time.Second)
				if got, _ := c.did(); len(got) < 2 || got[1] != "lost" {
					t.Errorf("did %q, want lead and lost", got)
				}
			})
		})
	}
}

func TestTimingsChangeWithoutALapse(t *testing.T) {
	duration := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	tests := []struct {
		name                   string
		lease, deadline, retry time.Duration
	}{
		{"shorter", 5 * time.Second, 3 * time.Second, time.Second},
		{"longer", time.Minute, 40 * time.Second, 10 * time.Second},
		{"other retry", 15 * time.Second, 10 * time.Second, 500 * time.Millisecond},
		{"same", 15 * time.Second, 10 * time.Second, 2 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				c := newCandidate(t, s, "a")
				defer c.run(t)()
				settle(5 * time.Second)
				changed := config()
				changed.LeaseDuration, changed.RenewDeadline = duration(test.lease), duration(test.deadline)
				changed.RetryPeriod = duration(test.retry)
				if err := c.Apply(changed); err != nil {
					t.Fatal(err)
				}
				applied := time.Now()
				settle(2 * time.Minute)
				if err := c.Apply(config()); err != nil {
					t.Fatal(err)
				}
				settle(2 * time.Minute)
				c.expect(t, "lead")
				if got := c.recorded(); len(got) != 1 {
					t.Errorf("events %q, want one", got)
				}
				writes := s.by("a")
				seconds := int32(test.lease / time.Second)
				adopted := slices.IndexFunc(writes, func(w write) bool {
					return w.at.After(applied) && *w.lease.Spec.LeaseDurationSeconds == seconds
				})
				if adopted < 0 || writes[adopted].at.Sub(applied) > 2100*time.Millisecond {
					t.Fatalf("the new timings were not adopted within the old retry period")
				}
				for i, w := range writes[1:] {
					if transitions(w.lease) != 0 || !w.lease.Spec.AcquireTime.Equal(writes[0].lease.Spec.AcquireTime) {
						t.Fatalf("the leader changed: %+v", w.lease.Spec)
					}
					if gap := w.at.Sub(writes[i].at); gap > max(test.retry, 2*time.Second)+time.Second {
						t.Errorf("a gap of %s between renewals", gap)
					}
				}
				if got := *writes[len(writes)-1].lease.Spec.LeaseDurationSeconds; got != 15 {
					t.Errorf("leaseDurationSeconds is %d at the end, want 15", got)
				}
				if left := time.Until(c.fence.Deadline()); left > 14*time.Second || left < 11*time.Second {
					t.Errorf("the fence is open for %s, want 11 to 14 s", left)
				}
			})
		})
	}
}

func TestManyChangesOfTimings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		stop := c.run(t)
		for i := range 100 {
			changed := config()
			changed.RetryPeriod.Duration = time.Duration(i%5+1) * 500 * time.Millisecond
			changed.LeaseDuration.Duration = time.Duration(i%7+15) * time.Second
			if err := c.Apply(changed); err != nil {
				t.Fatal(err)
			}
			settle(time.Duration(i%11) * 300 * time.Millisecond)
		}
		c.expect(t, "lead")
		writes := s.by("a")
		for i, w := range writes[1:] {
			if gap := w.at.Sub(writes[i].at); gap > 3500*time.Millisecond {
				t.Errorf("a gap of %s between renewals", gap)
			}
		}
		stop()
		c.expect(t, "lead", "lost")
	})
}

func TestTimingsChangeDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		settle(5 * time.Second)
		shorter := config()
		shorter.LeaseDuration.Duration, shorter.RenewDeadline.Duration, shorter.RetryPeriod.Duration = 5*time.Second, 3*time.Second, time.Second
		if err := c.Apply(shorter); err != nil {
			t.Fatal(err)
		}
		// The server does what it is told, and its answers are lost.
		s.mu.Lock()
		s.lost = errors.New("connection reset")
		s.mu.Unlock()
		settle(13 * time.Second)
		lost := c.expect(t, "lead", "lost")
		for _, w := range s.by("a") {
			if w.at.Before(lost) && *w.lease.Spec.LeaseDurationSeconds == 5 {
				t.Errorf("timings changed though the server did not answer")
			}
		}
		s.mu.Lock()
		s.lost = nil
		s.mu.Unlock()
		settle(10 * time.Second)
		c.expect(t, "lead", "lost", "lead")
		if got := *s.current().Spec.LeaseDurationSeconds; got != 5 {
			t.Errorf("leads again with a lease of %d s, want 5", got)
		}
	})
}

// The Lease may say a shorter duration though the answer never came.
func TestShorterDurationCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		settle(5 * time.Second)
		a, err := c.newAttempt(timings{5 * time.Second, 3 * time.Second, time.Second}, true)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.lost = errors.New("connection reset")
		s.mu.Unlock()
		if _, err := a.Leases("").Update(t.Context(), s.current(), metav1.UpdateOptions{}); err == nil {
			t.Fatal("no error")
		}
		if left := time.Until(c.fence.Deadline()); left > 5*time.Second {
			t.Errorf("the fence is open for %s, want 5 s at most", left)
		}
	})
}

func TestReleaseHandsOverTheLastWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		a, b := newCandidate(t, s, "a"), newCandidate(t, s, "b")
		a.written = map[apischema.GroupResource]string{{Resource: "pods"}: "123", {Group: "apps", Resource: "deployments"}: "456"}
		stopA := a.run(t)
		settle(time.Second)
		defer b.run(t)()
		settle(10 * time.Second)
		b.expect(t)
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		stopA()
		settle(100 * time.Millisecond)
		a.expect(t, "lead", "lost")
		if at := b.expect(t, "lead"); at.Sub(released) > 50*time.Millisecond {
			t.Errorf("taken after %s, want at once", at.Sub(released))
		}
		writes := s.by("")
		if len(writes) != 1 {
			t.Fatalf("%d releases, want 1", len(writes))
		}
		spec := writes[0].lease.Spec
		if *spec.LeaseDurationSeconds != 1 || *spec.LeaseTransitions != 0 || spec.RenewTime == nil || spec.AcquireTime == nil {
			t.Errorf("released as %+v", spec)
		}
		left := writes[0].lease.Annotations[writtenAnnotation]
		if want := `{"transitions":0,"written":{"deployments.apps":"456","pods":"123"}}`; left != want {
			t.Errorf("annotation %s, want %s", left, want)
		}
		marks, ok := b.LastMarks()
		if !ok || len(marks) != 2 || marks[apischema.GroupResource{Group: "apps", Resource: "deployments"}] != "456" {
			t.Errorf("handed over %v, %t", marks, ok)
		}
		if got := s.current(); transitions(got) != 1 || got.Annotations[writtenAnnotation] != "" {
			t.Errorf("taken as %+v with annotations %v; want the marks gone", got.Spec, got.Annotations)
		}
	})
}

func TestMarksOfAnEarlierLeaderAreStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		a, b := newCandidate(t, s, "a"), newCandidate(t, s, "b")
		a.written = map[apischema.GroupResource]string{{Resource: "pods"}: "123"}
		stopA := a.run(t)
		settle(time.Second)
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		stopA()
		s.hold(peer, 15) // keeps the annotation
		s.hold("", 1)
		if s.current().Annotations[writtenAnnotation] == "" {
			t.Fatal("the annotation is gone, so this tests nothing")
		}
		defer b.run(t)()
		settle(time.Second)
		b.expect(t, "lead")
		if marks, ok := b.LastMarks(); ok {
			t.Errorf("marks %v of a leader before the last one", marks)
		}
	})
}

func TestReleaseOfAStandbyOrWhenNotWantedWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		a := newCandidate(t, s, "a", func(c *schema.LeaderElection) { c.ReleaseOnExit = false })
		b := newCandidate(t, s, "b")
		stopA := a.run(t)
		settle(time.Second)
		stopB := b.run(t)
		settle(10 * time.Second)
		for _, c := range []*candidate{a, b} {
			if err := c.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		stopA()
		stopB()
		b.expect(t)
		if got := s.current(); holder(got) != "a" || len(s.by("")) != 0 {
			t.Errorf("the lease is held by %q, want a", holder(got))
		}
	})
}

func TestReleaseBeforeRun(t *testing.T) {
	c := newCandidate(t, &server{}, "a")
	if err := c.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("it runs after its release")
	}
}

func TestReleaseWhileTheServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		stop := c.run(t)
		settle(time.Second)
		s.fail(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
		start := time.Now()
		if err := c.Release(t.Context()); err == nil || !strings.Contains(err.Error(), "release") {
			t.Errorf("error %v, want one that says what failed", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %s, want the renew deadline at most", took)
		}
		stop()
	})
}

func TestOneLeaderAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		names := []string{"a", "b", "c", "d", "e"}
		stops := map[string]func(){}
		candidates := map[string]*candidate{}
		for _, name := range names {
			candidates[name] = newCandidate(t, s, name)
			stops[name] = candidates[name].run(t)
		}
		for len(stops) > 0 {
			settle(20 * time.Second)
			var leaders []string
			for name := range stops {
				if candidates[name].Status().Leader {
					leaders = append(leaders, name)
				}
				if allowed := candidates[name].fence.Allow() == nil; allowed != candidates[name].Status().Leader {
					t.Errorf("%s leads: %t, may write: %t", name, candidates[name].Status().Leader, allowed)
				}
			}
			if len(leaders) != 1 {
				t.Fatalf("%d leaders: %q", len(leaders), leaders)
			}
			stops[leaders[0]]() // dies without a release
			delete(stops, leaders[0])
		}
	})
}

func TestCandidateWithoutAWatchReadsInstead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.hold(peer, 15)
		s.fail(func(_ context.Context, verb string) error {
			if verb == "watch" {
				return errors.New("forbidden")
			}
			return nil
		})
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		for range 10 {
			settle(2 * time.Second)
			s.hold(peer, 15)
		}
		c.expect(t)
		settle(26 * time.Second) // the duration, a pause to see the last renewal, and one to see its expiry
		c.expect(t, "lead")
		if s.requests > 80 {
			t.Errorf("%d requests in 46 s", s.requests)
		}
	})
}

// Neither a watch that says nothing nor one that ends all the time may let a
// candidate take a lease that is renewed.
func TestStaleWatchDoesNotTakeALiveLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.hold(peer, 15)
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		for i := range 60 {
			settle(2 * time.Second)
			s.mu.Lock()
			for _, w := range s.watches {
				if i < 30 {
					continue
				}
				w.Stop()
			}
			s.watches = nil // silent from now on
			s.mu.Unlock()
			s.hold(peer, 15)
		}
		c.expect(t)
		if s.requests > 120 {
			t.Errorf("%d requests in two minutes", s.requests)
		}
	})
}

func TestPanicInTheElectorIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		defer c.run(t)()
		settle(5 * time.Second)
		s.fail(func(_ context.Context, verb string) error {
			if verb == "update" {
				panic("broken")
			}
			return nil
		})
		settle(10 * time.Second)
		s.fail(nil)
		settle(10 * time.Second)
		if got, _ := c.did(); !slices.Equal(got, []string{"lead", "lost", "lead"}) {
			t.Errorf("did %q, want it to lose and lead again", got)
		}
	})
}

func TestLeaderThatCannotRenewIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newCandidate(t, s, "a")
		stop := c.run(t)
		settle(5 * time.Second)
		if err := c.Check(nil); err != nil || c.Name() != "leaderElection" {
			t.Errorf("%s: %v, want leaderElection to pass", c.Name(), err)
		}
		hang := make(chan struct{})
		s.fail(func(context.Context, string) error { <-hang; return errors.New("late") }) // heeds no context
		settle(33 * time.Second)
		if err := c.Check(nil); err != nil {
			t.Errorf("unhealthy within the lease's duration and 20 s: %v", err)
		}
		settle(4 * time.Second)
		if err := c.Check(nil); err == nil {
			t.Error("healthy without a renewal for longer than the lease's duration and 20 s")
		}
		close(hang)
		settle(time.Second)
		if err := c.Check(nil); err != nil {
			t.Errorf("unhealthy after the loss: %v", err)
		}
		stop()
	})
}

func TestWithoutElectionsItLeadsAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(t, nil, "", func(c *schema.LeaderElection) { *c = schema.LeaderElection{} })
		stop := c.run(t)
		settle(24 * time.Hour)
		c.expect(t, "lead")
		if err := c.fence.Allow(); err != nil || !c.Status().Leader {
			t.Errorf("allow %v, status %+v", err, c.Status())
		}
		if err := c.Release(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		c.expect(t, "lead", "lost")
		if c.fence.Allow() == nil {
			t.Error("the fence is open after the end")
		}
	})
}

func TestBadTimingsAreRefused(t *testing.T) {
	tests := []struct {
		name                   string
		lease, deadline, retry time.Duration
		want                   string
	}{
		{"deadline as long as the lease", 10, 10, 2, "leaseDuration"},
		{"retry too long", 15, 10, 9, "renewDeadline"},
		{"no retry", 15, 10, 0, "retryPeriod"},
		{"nothing", 0, 0, 0, "leaseDuration"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newCandidate(t, &server{}, "a")
			changed := config()
			changed.LeaseDuration.Duration = test.lease * time.Second
			changed.RenewDeadline.Duration = test.deadline * time.Second
			changed.RetryPeriod.Duration = test.retry * time.Second
			if err := c.Apply(changed); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one about %s", err, test.want)
			}
			o := c.o
			o.Config = changed
			if _, err := New(o); err == nil {
				t.Error("New takes them")
			}
			if got := c.timings(); got != timingsOf(config()) {
				t.Errorf("timings are %v, want them unchanged", got)
			}
		})
	}
}
