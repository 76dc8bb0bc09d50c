package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

const a, b, c = "a-controller", "b-controller", "c-controller"

// inBubble runs a test in fake time, with a supervisor that must end without error.
func inBubble(t *testing.T, change func(*Options), test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, change)
		test(t, f)
		if err := f.end(); err != nil {
			t.Errorf("the supervisor ended with: %v", err)
		}
		if f.living() != 0 {
			t.Errorf("%d lives are left", f.living())
		}
	})
}

func TestReloadTouchesOnlyWhatChanged(t *testing.T) {
	tests := map[string]struct {
		edit      func(*schema.ControllerManagerConfiguration)
		wantPlan  string
		sameLife  bool
		wantState State
		check     func(t *testing.T, l *fakeLife)
	}{
		"workers": {
			edit:     func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Workers = 50 },
			wantPlan: "b-controller resize: workers: 5 → 50", sameLife: true, wantState: Running,
			check: func(t *testing.T, l *fakeLife) {
				if l.now().workers != 50 || l.now().applied != 0 {
					t.Errorf("workers %d, live fields applied %d times", l.now().workers, l.now().applied)
				}
			},
		},
		"live field": {
			edit:     func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Note = "hello" },
			wantPlan: `b-controller live: note: "" → hello`, sameLife: true, wantState: Running,
			check: func(t *testing.T, l *fakeLife) {
				if l.now().live.Note != "hello" || l.now().applied != 1 {
					t.Errorf("note %q, applied %d times", l.now().live.Note, l.now().applied)
				}
			},
		},
		"part of a field that is live": {
			edit:     func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Limits.Low = 1 },
			wantPlan: "b-controller live: limits.low: 0 → 1", sameLife: true, wantState: Running,
		},
		"part of a field that is not": {
			edit:     func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Limits.High = 1 },
			wantPlan: "b-controller restart: limits.high: 0 → 1", wantState: Running,
		},
		"client limits": {
			edit: func(cfg *schema.ControllerManagerConfiguration) {
				section(cfg, b).Client = &schema.ClientLimits{QPS: 20, Burst: 30}
			},
			wantPlan: "b-controller live: client.burst: unset → 30, client.qps: unset → 20", sameLife: true, wantState: Running,
		},
		"workers and live field": {
			edit: func(cfg *schema.ControllerManagerConfiguration) {
				section(cfg, b).Workers, section(cfg, b).Note = 1, "x"
			},
			wantPlan: `b-controller resize: workers: 5 → 1; b-controller live: note: "" → x`, sameLife: true, wantState: Running,
			check: func(t *testing.T, l *fakeLife) {
				if l.now().workers != 1 || l.now().live.Note != "x" {
					t.Errorf("workers %d, note %q", l.now().workers, l.now().live.Note)
				}
			},
		},
		"any other field": {
			edit: func(cfg *schema.ControllerManagerConfiguration) {
				section(cfg, b).Period.Duration = time.Minute
				section(cfg, b).Workers = 7
			},
			wantPlan: "b-controller restart: period: 0s → 1m0s", wantState: Running,
			check: func(t *testing.T, l *fakeLife) {
				if l.section.Period.Duration != time.Minute || l.now().workers != 7 {
					t.Errorf("period %v, workers %d", l.section.Period, l.now().workers)
				}
			},
		},
		"disabled": {
			edit:     func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Enabled = false },
			wantPlan: "b-controller stop: disabled", wantState: Disabled,
		},
		"nothing": {sameLife: true, wantState: Running},
		"engine settings": {
			edit: func(cfg *schema.ControllerManagerConfiguration) {
				cfg.Logging.Level = 2
			},
			wantPlan: "logging.level live: logging.level: 0 → 2, holds at once", sameLife: true, wantState: Running,
		},
		"cluster field that it reads": {
			edit: func(cfg *schema.ControllerManagerConfiguration) {
				cfg.Cluster.ClusterCIDRs = []string{"10.0.0.0/8"}
			},
			wantPlan: `cluster.clusterCIDRs live: cluster.clusterCIDRs: [] → ["10.0.0.0/8"], restarts the controllers that read it; ` +
				`b-controller restart: cluster.clusterCIDRs: [] → ["10.0.0.0/8"]`, wantState: Running,
		},
		"feature gate that it reads": {
			edit: func(cfg *schema.ControllerManagerConfiguration) {
				cfg.FeatureGates = map[string]bool{"HPAScaleToZero": false}
			},
			wantPlan: "featureGates.HPAScaleToZero live: featureGates.HPAScaleToZero: unset → false, restarts the controllers that read it; " +
				"b-controller restart: featureGates.HPAScaleToZero: true → false", wantState: Running,
		},
		"feature gate that it needs": {
			edit: func(cfg *schema.ControllerManagerConfiguration) {
				cfg.FeatureGates = map[string]bool{"PodLevelResources": false}
			},
			wantPlan: "featureGates.PodLevelResources live: featureGates.PodLevelResources: unset → false, restarts the controllers that read it; " +
				"b-controller stop: feature gate PodLevelResources is off", wantState: Unavailable,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *Options) {
				o.Descriptors[1].ReadsCluster = []string{"clusterCIDRs"}
				o.Descriptors[1].ReadsFeatureGates = []string{"HPAScaleToZero"}
				o.Descriptors[1].FeatureGates = []string{"PodLevelResources"}
			}, func(t *testing.T, f *fixture) {
				f.lead(true)
				_, settled := f.edit(nil)
				f.expectSettled(settled, true)
				f.expectStates(Running, Running, Running)
				before := map[string]*fakeLife{a: f.life(a), b: f.life(b), c: f.life(c)}

				plan, settled := f.edit(test.edit)
				var got []string
				for _, s := range plan {
					got = append(got, fmt.Sprintf("%s%s %s: %s", s.Controller, s.Setting, s.Action, s.Reason))
				}
				if text := strings.Join(got, "; "); text != test.wantPlan {
					t.Errorf("plan %q\nwant %q", text, test.wantPlan)
				}
				f.expectSettled(settled, true)
				f.expectStates(Running, test.wantState, Running)
				if f.life(a) != before[a] || f.life(c) != before[c] {
					t.Error("another controller was restarted")
				}
				if same := f.life(b) == before[b]; same != test.sameLife {
					t.Errorf("same life: %t, want %t", same, test.sameLife)
				}
				if test.check != nil {
					test.check(t, f.life(b))
				}
				if !test.sameLife && !errors.Is(before[b].now().cause, ErrStop) {
					t.Errorf("the life was ended with %v", before[b].now().cause)
				}
			})
		})
	}
}

func TestWarmStandbyIsReadyButDoesNotReconcile(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{syncTakes: time.Second})
		_, settled := f.edit(nil)
		f.expectSettled(settled, true)
		f.expectStates(Standby, Standby, Standby)
		life := f.life(a)
		f.lead(true)
		settled = f.Settled()
		f.expectStates(Starting, Running, Running)
		f.expectSettled(settled, false)
		time.Sleep(time.Second)
		f.expectSettled(settled, true)
		f.expectStates(Running, Running, Running)
		if f.life(a) != life {
			t.Error("the standby was thrown away when leadership came")
		}
		if status, _ := f.Lookup(a); status.Restarts != 0 || status.Informers[0] != "pods" || status.Work.Wanted != 5 {
			t.Errorf("status %+v", status)
		}

		f.lead(false)
		f.expectSettled(f.Settled(), true)
		f.expectStates(Standby, Standby, Standby)
		if !errors.Is(life.now().cause, ErrLeadershipLost) || !errors.Is(life.now().workCause, ErrLeadershipLost) {
			t.Errorf("ended with %v, its work with %v", life.now().cause, life.now().workCause)
		}
		if f.life(a) == life || f.life(a) == nil {
			t.Error("no new standby")
		}
	})
}

func TestStandbyThatHasOutgrownItsWorkIsMadeAnew(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.edit(nil)
		f.expectStates(Standby, Standby, Standby)
		life, other := f.life(a), f.life(b)
		f.set(a, behaviour{outgrown: true})
		time.Sleep(2 * time.Minute)
		f.expectStates(Standby, Standby, Standby)
		if now := f.life(a); now == nil || now == life || !errors.Is(life.now().cause, ErrStop) {
			t.Errorf("the standby is %p, was %p, and ended with %v", now, life, life.now().cause)
		}
		if f.life(b) != other {
			t.Error("another standby was made anew as well")
		}

		// Who leads does the work instead.
		f.lead(true)
		f.expectStates(Running, Running, Running)
		f.set(b, behaviour{outgrown: true})
		time.Sleep(2 * time.Minute)
		f.expectStates(Running, Running, Running)
		if f.life(b) != other {
			t.Error("a running controller was made anew")
		}
	})
}

func TestColdStandbyHasNoLives(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			cfg.LeaderElection.Standby = schema.StandbyCold
		})
		f.expectSettled(settled, true)
		f.expectStates(Standby, Standby, Standby)
		if f.living() != 0 {
			t.Error("a cold standby has lives")
		}
		f.lead(true)
		f.expectStates(Running, Running, Running)
		f.lead(false)
		f.expectStates(Standby, Standby, Standby)
		if f.living() != 0 {
			t.Error("a cold standby has lives")
		}
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { cfg.LeaderElection.Standby = schema.StandbyWarm })
		f.expectStates(Standby, Standby, Standby)
		if f.living() != 3 {
			t.Error("a warm standby has no lives")
		}
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { cfg.LeaderElection.Standby = schema.StandbyCold })
		f.expectStates(Standby, Standby, Standby)
		if f.living() != 0 {
			t.Error("a cold standby keeps lives")
		}
	})
}

// Losing and winning again between two looks of a slot must not pass unnoticed.
func TestLeadershipLostAndWonAtOnceEndsTheLives(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		life := f.life(a)
		f.SetLeading(false)
		f.SetLeading(true)
		f.expectStates(Running, Running, Running)
		if f.life(a) == life || !errors.Is(life.now().cause, ErrLeadershipLost) {
			t.Errorf("a life outlived its term, or ended with %v", life.now().cause)
		}
	})
}

func TestDrainTimeoutEndsTheWorkContext(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{drains: 10 * time.Second})
		f.set(b, behaviour{drains: time.Hour})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		lifeA, lifeB := f.life(a), f.life(b)
		_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			section(cfg, a).Enabled = false
			section(cfg, b).Enabled = false
		})
		f.expectState(a, Stopping, "disabled in the configuration")
		time.Sleep(10 * time.Second)
		f.expectStates(Disabled, Stopping, Running)
		if lifeA.now().workCause != nil {
			t.Errorf("a drained in time, but its work ended with %v", lifeA.now().workCause)
		}
		f.expectSettled(settled, false)
		time.Sleep(20*time.Second - time.Nanosecond)
		f.expectStates(Disabled, Stopping, Running)
		time.Sleep(time.Nanosecond)
		f.expectStates(Disabled, Disabled, Running)
		f.expectSettled(settled, true)
		if !errors.Is(lifeB.now().cause, ErrStop) || !errors.Is(lifeB.now().workCause, ErrDrainTimeout) {
			t.Errorf("b ended with %v, its work with %v", lifeB.now().cause, lifeB.now().workCause)
		}
	})
}

func TestDrainTimeoutIsLive(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{drains: time.Hour})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = false })
		f.expectStates(Stopping, Running, Running)
		time.Sleep(time.Second)
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { cfg.Reload.DrainTimeout.Duration = 2 * time.Second })
		f.expectStates(Stopping, Running, Running)
		time.Sleep(time.Second)
		f.expectStates(Disabled, Running, Running)
	})
}

func TestLeadershipLostWhileDrainingGivesUpAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{drains: time.Hour})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		life := f.life(a)
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = false })
		f.expectStates(Stopping, Running, Running)
		f.lead(false)
		f.expectStates(Disabled, Standby, Standby)
		if !errors.Is(life.now().cause, ErrStop) || !errors.Is(life.now().workCause, ErrLeadershipLost) {
			t.Errorf("ended with %v, its work with %v", life.now().cause, life.now().workCause)
		}
		if err := f.StuckAfterLoss(); err != nil {
			t.Error(err)
		}
	})
}

func TestStuckControllerHasNoSecondInstanceBesideIt(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{drains: time.Hour, outlives: time.Hour})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		stuck := f.life(a)
		stuck.lasts(time.Minute)
		_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Period.Duration = time.Minute })
		time.Sleep(39 * time.Second)
		f.expectState(a, Stopping, "restarts for period: 0s → 1m0s")
		f.expectSettled(settled, false)
		time.Sleep(time.Second)
		f.expectState(a, Stuck, "still reconciles ns/slow after reload.drainTimeout")
		f.expectSettled(settled, true)
		if err := f.Healthy(a); err == nil || !strings.Contains(err.Error(), "Stuck since 2000-01-01T00:00:40Z: still reconciles ns/slow") {
			t.Errorf("healthy: %v", err)
		}
		if f.StuckAfterLoss() != nil {
			t.Error("leadership was not lost")
		}
		// Nothing brings it back before the stuck one has ended.
		f.set(a, behaviour{})
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = false })
		f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			section(cfg, a).Enabled, section(cfg, a).Workers = true, 9
		})
		f.expectStates(Stuck, Running, Running)
		if f.madeOf(a) != 1 {
			t.Errorf("%d lives were made", f.madeOf(a))
		}
		time.Sleep(time.Hour)
		f.expectStates(Running, Running, Running)
		if f.life(a) == stuck || f.life(a).now().workers != 9 {
			t.Error("it did not proceed to what is wanted")
		}
		if err := f.Healthy(a); err != nil {
			t.Errorf("healthy: %v", err)
		}
	})
}

func TestStuckAfterLossIsReported(t *testing.T) {
	for name, alreadyStuck := range map[string]bool{"ran": false, "was stuck already": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, f *fixture) {
				f.set(a, behaviour{drains: 2 * time.Hour, outlives: time.Hour})
				f.lead(true)
				f.edit(nil)
				f.expectStates(Running, Running, Running)
				if alreadyStuck {
					f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Period.Duration = time.Minute })
					time.Sleep(time.Minute)
					f.expectStates(Stuck, Running, Running)
				}
				f.changed()
				f.lead(false)
				settled := f.Settled()
				time.Sleep(9 * time.Second)
				f.expectSettled(settled, false)
				if err := f.StuckAfterLoss(); err != nil {
					t.Errorf("too early: %v", err)
				}
				time.Sleep(time.Second)
				f.expectSettled(settled, true)
				err := f.StuckAfterLoss()
				if want := "controllers do not end although leadership was lost: a-controller (has not ended after leadership was lost)"; err == nil ||
					err.Error() != want {
					t.Errorf("error %v, want %s", err, want)
				}
				if changes := f.changed(); !slices.Contains(changes, "a-controller Stuck→Stuck") {
					t.Errorf("not reported: %v", changes)
				}
				f.expectStates(Stuck, Standby, Standby)
				f.set(a, behaviour{})
				time.Sleep(time.Hour)
				f.expectStates(Standby, Standby, Standby)
				if err := f.StuckAfterLoss(); err != nil {
					t.Errorf("after it has ended: %v", err)
				}
			})
		})
	}
}

func TestRunNamesStuckControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.set(a, behaviour{drains: time.Hour, outlives: time.Hour})
		f.set(b, behaviour{drains: 20 * time.Second})
		f.set(c, behaviour{drains: 25 * time.Second})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		start := time.Now()
		err := f.end()
		if want := "controllers do not stop: a-controller (has not ended after reload.drainTimeout)"; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		// All drain at the same time: 30 s of drainTimeout and 10 s of grace.
		if d := time.Since(start); d != 40*time.Second {
			t.Errorf("it took %v", d)
		}
		_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Workers = 1 })
		f.expectSettled(settled, true)
		f.SetLeading(false)
		f.expectSettled(f.Settled(), true)
		if f.living() != 1 {
			t.Errorf("%d lives, want the stuck one", f.living())
		}
		time.Sleep(2 * time.Hour) // for the bubble to end
	})
}

func TestFailedControllerIsRestartedWithBackOff(t *testing.T) {
	tests := map[string]struct {
		b      behaviour
		reason string
	}{
		"cannot be made":       {behaviour{makeErr: errors.New("no such file")}, "make the controller: no such file"},
		"making it panics":     {behaviour{makePanic: true}, "controller panicked: no controller"},
		"ends with an error":   {behaviour{failsAfter: time.Nanosecond}, "no luck"},
		"ends by itself":       {behaviour{failsAfter: time.Nanosecond, returnsNil: true}, "the controller ended by itself"},
		"panics while running": {behaviour{failsAfter: time.Nanosecond, panics: true}, "controller panicked: boom"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, f *fixture) {
				f.set(a, test.b)
				f.lead(true)
				_, settled := f.edit(nil)
				synctest.Wait()
				other := f.life(b)
				for i, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
					time.Sleep(10 * time.Nanosecond)
					f.expectState(a, Failed, test.reason)
					if err := f.Healthy(a); err == nil || !strings.Contains(err.Error(), test.reason) {
						t.Errorf("healthy: %v", err)
					}
					status, _ := f.Lookup(a)
					if status.Restarts != i || status.LastError != test.reason {
						t.Errorf("%d restarts, last error %q", status.Restarts, status.LastError)
					}
					time.Sleep(wait*time.Second - 20*time.Nanosecond)
					f.expectState(a, Failed, test.reason)
					time.Sleep(20 * time.Nanosecond)
					synctest.Wait()
				}
				f.expectSettled(settled, true)
				if f.life(b) != other {
					t.Error("another controller was restarted")
				}
				if err := f.Healthy(b); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestHealthForgetsFailures(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		fails := func(after time.Duration) { f.set(a, behaviour{failsAfter: after}) }
		failures := 0
		waitForFailure := func() {
			t.Helper()
			for range 10_000 {
				if status, _ := f.Lookup(a); status.State == Failed {
					failures++
					return
				}
				time.Sleep(time.Second / 10)
				synctest.Wait()
			}
			t.Fatal("it does not fail")
		}
		backoff := func(want time.Duration) {
			t.Helper()
			status, _ := f.Lookup(a)
			time.Sleep(want - time.Since(status.Since) - time.Nanosecond)
			f.expectStates(Failed, Running, Running)
			time.Sleep(time.Nanosecond)
			f.expectStates(Running, Running, Running)
		}
		fails(time.Minute)
		f.lead(true)
		f.edit(nil)
		waitForFailure()
		backoff(time.Second)
		fails(4 * time.Minute)
		waitForFailure()
		backoff(2 * time.Second)
		fails(6 * time.Minute)
		waitForFailure()
		backoff(4 * time.Second) // that life was healthy for 4 minutes only
		fails(0)
		waitForFailure()
		backoff(time.Second) // that one for 6
		time.Sleep(time.Hour)
		f.expectStates(Running, Running, Running)
		if failures != 4 {
			t.Errorf("%d failures", failures)
		}
	})
}

func TestChangeOfAFailedControllerRetriesAtOnce(t *testing.T) {
	edits := map[string]struct {
		do func(f *fixture)
		// forgets the failures so far: the next back-off starts small.
		forgets, retries bool
	}{
		"its section": {func(f *fixture) {
			f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Workers = 9 })
		}, true, true},
		"off and on": {func(f *fixture) {
			f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = false })
			f.expectStates(Disabled, Running, Running)
			f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = true })
		}, true, true},
		"leadership": {func(f *fixture) {
			f.lead(false)
			synctest.Wait()
			f.lead(true)
		}, false, true},
		"another section": {func(f *fixture) {
			f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Workers = 9 })
		}, false, false},
		"discovery without effect": {func(f *fixture) { f.Recheck() }, false, false},
	}
	for name, test := range edits {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, f *fixture) {
				f.set(a, behaviour{failsAfter: time.Nanosecond})
				f.lead(true)
				f.edit(nil)
				time.Sleep(time.Minute) // 1+2+4+8+16 s, now 32 s
				f.expectStates(Failed, Running, Running)
				made := f.madeOf(a)
				test.do(f)
				synctest.Wait()
				if retried := f.madeOf(a) > made; retried != test.retries {
					t.Fatalf("retried: %t, want %t", retried, test.retries)
				}
				if !test.retries {
					return
				}
				time.Sleep(10 * time.Nanosecond)
				f.expectStates(Failed, Running, Running)
				f.set(a, behaviour{})
				time.Sleep(time.Second)
				if test.forgets {
					f.expectStates(Running, Running, Running)
				} else {
					f.expectStates(Failed, Running, Running)
				}
			})
		})
	}
}

func TestRestartedAfterFailureIsUnhealthyUntilItRuns(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{failsAfter: time.Second, syncTakes: time.Minute})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Starting, Running, Running)
		if err := f.Healthy(a); err != nil {
			t.Errorf("at the first start: %v", err)
		}
		time.Sleep(time.Minute + 3*time.Second)
		f.expectStates(Starting, Running, Running)
		if err := f.Healthy(a); err == nil || !strings.Contains(err.Error(), "after it failed: no luck") {
			t.Errorf("after a failure: %v", err)
		}
		time.Sleep(time.Minute - time.Second)
		f.expectStates(Running, Running, Running)
		if err := f.Healthy(a); err != nil {
			t.Errorf("once it runs: %v", err)
		}
	})
}

func TestHungControllersAreUnhealthy(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{syncTakes: time.Hour})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Starting, Running, Running)
		f.life(b).lasts(11 * time.Minute)
		if err := f.Healthy(b); err == nil || err.Error() != "the reconcile of ns/slow has not returned for 11m0s" {
			t.Errorf("hung in a reconcile: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if err := f.Healthy(a); err != nil {
			t.Errorf("starting for 10 minutes: %v", err)
		}
		time.Sleep(time.Second)
		if err := f.Healthy(a); err == nil || err.Error() != "has been starting for 10m1s: waits for its caches" {
			t.Errorf("starting for more than 10 minutes: %v", err)
		}
		if err := f.Healthy(c); err != nil {
			t.Error(err)
		}
		if err := f.Healthy("d-controller"); err == nil || err.Error() != "no such controller: d-controller" {
			t.Errorf("unknown: %v", err)
		}
	})
}

func TestPanicWhileApplyingLiveFieldsRestartsTheController(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{applyPanics: true})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		other := f.life(b)
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Note = "x" })
		f.expectState(a, Failed, "applying live fields panicked: not live")
		time.Sleep(time.Second)
		f.expectStates(Running, Running, Running)
		if f.life(a).now().section.Note != "x" || f.life(b) != other {
			t.Error("not restarted alone, with the new configuration")
		}
	})
}

func TestSlowApplyingOfLiveFieldsDelaysNothingElse(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{applyTakes: time.Minute})
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		life := f.life(a)
		note := func(text string) <-chan struct{} {
			_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Note = text })
			return settled
		}
		first := note("1")
		f.expectSettled(first, false)
		note("2")
		last := note("3")
		time.Sleep(time.Minute)
		f.expectSettled(last, false)
		if life.now().live.Note != "1" {
			t.Errorf("note %q", life.now().live.Note)
		}
		time.Sleep(time.Minute)
		f.expectSettled(last, true)
		if life.now().live.Note != "3" || life.now().applied != 2 {
			t.Errorf("note %q after %d calls, want the newest after 2", life.now().live.Note, life.now().applied)
		}
		// Stopping waits for the call, but not for ever.
		note("4")
		f.expectStates(Running, Running, Running)
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = false })
		f.expectStates(Stopping, Running, Running)
		time.Sleep(40 * time.Second)
		f.expectState(a, Stuck, "still applies live fields after reload.drainTimeout")
		time.Sleep(20 * time.Second)
		f.expectStates(Disabled, Running, Running)
	})
}

func TestStartsAreSpaced(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.lead(true)
		_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			cfg.Controllers.StartInterval.Duration = 10 * time.Second
		})
		synctest.Wait()
		states := map[State]int{}
		for _, s := range f.Status() {
			states[s.State]++
		}
		if states[Running] != 1 || states[Waiting] != 2 {
			t.Errorf("states %v, want one running and two waiting", states)
		}
		time.Sleep(15 * time.Second) // jitter is 0.5
		time.Sleep(15 * time.Second)
		f.expectSettled(settled, true)
		f.expectStates(Running, Running, Running)
		var at []string
		for _, s := range f.starts() {
			at = append(at, s[strings.Index(s, "@")+1:])
		}
		if want := []string{"0s", "15s", "30s"}; !slices.Equal(at, want) {
			t.Errorf("starts at %v, want %v", at, want)
		}
		// The interval counts from the last start, and does not hold up stops, resizes or live changes.
		time.Sleep(time.Hour)
		before := time.Now()
		_, settled = f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			section(cfg, a).Period.Duration = time.Minute
			section(cfg, b).Enabled = false
			section(cfg, c).Workers = 1
		})
		f.expectSettled(settled, true)
		f.expectStates(Running, Disabled, Running)
		if !time.Now().Equal(before) || f.life(c).now().workers != 1 {
			t.Error("the reload waited")
		}
	})
}

func TestWaitingForTheTurnCanBeCancelledAndShortened(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			cfg.Controllers.StartInterval.Duration = time.Hour
			section(cfg, b).Enabled = false
			section(cfg, c).Enabled = false
		})
		f.expectStates(Standby, Disabled, Disabled)
		f.lead(true)
		f.expectStates(Running, Disabled, Disabled)
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Enabled = true })
		f.expectState(b, Waiting, "controllers.startInterval since the last start is not over")
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, c).Enabled = true })
		f.expectState(c, Waiting, "other controllers start first")
		// b gives its turn back, c gets it.
		_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, b).Enabled = false })
		f.expectState(b, Disabled, "disabled in the configuration")
		f.expectState(c, Waiting, "controllers.startInterval since the last start is not over")
		f.expectSettled(settled, false)
		// Losing leadership cancels the wait too.
		f.lead(false)
		f.expectStates(Standby, Disabled, Standby)
		f.lead(true)
		synctest.Wait()
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { cfg.Controllers.StartInterval.Duration = 0 })
		f.expectStates(Running, Disabled, Running)
	})
}

func TestAvailabilityFollowsDiscovery(t *testing.T) {
	served := map[string]bool{a: true, b: false, c: true}
	inBubble(t, func(o *Options) {
		o.Known = []schema.SectionType{fakeType(a), fakeType("z-controller")}
		o.Unavailable = func(name string, cfg *schema.ControllerManagerConfiguration) string {
			if !served[name] {
				return "no API"
			}
			return ""
		}
	}, func(t *testing.T, f *fixture) {
		f.Recheck() // before there is a configuration
		f.lead(true)
		plan, settled := f.edit(nil)
		f.expectSettled(settled, true)
		if len(plan) != 2 || plan[0].Controller != a || plan[1].Controller != c {
			t.Errorf("plan %v", plan)
		}
		f.expectState(b, Unavailable, "no API")
		if err := f.Healthy(b); err != nil {
			t.Error(err)
		}
		if status, ok := f.Lookup("z-controller"); !ok || status.State != Unavailable || status.Reason != "not available in this build" {
			t.Errorf("z-controller: %+v", status)
		}
		if err := f.Healthy("z-controller"); err != nil {
			t.Error(err)
		}
		if f.Handler("z-controller") != nil || f.Handler(b) != nil || f.Handler(a) == nil {
			t.Error("handlers of the wrong controllers")
		}
		other := f.life(c)
		served[a], served[b] = false, true
		f.Recheck()
		f.expectState(a, Unavailable, "no API")
		f.expectStates(Unavailable, Running, Running)
		if f.life(c) != other {
			t.Error("another controller was restarted")
		}
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = false })
		f.expectStates(Disabled, Running, Running)
		var names []string
		for _, s := range f.Status() {
			names = append(names, s.Name)
		}
		if want := append(slices.Clone(fakeNames), "z-controller"); !slices.Equal(names, want) {
			t.Errorf("status of %v, want %v", names, want)
		}
	})
}

// A slow answer about availability must not replace a newer configuration.
func TestSlowRecheckDoesNotBringAnOldConfigurationBack(t *testing.T) {
	slow := false
	inBubble(t, func(o *Options) {
		o.Unavailable = func(name string, cfg *schema.ControllerManagerConfiguration) string {
			if slow && name == a {
				slow = false
				time.Sleep(time.Minute)
				return "old answer"
			}
			return ""
		}
	}, func(t *testing.T, f *fixture) {
		f.lead(true)
		f.edit(nil)
		synctest.Wait()
		slow = true
		done := make(chan struct{})
		go func() { f.Recheck(); close(done) }()
		synctest.Wait()
		_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Workers = 2 })
		f.expectSettled(settled, true)
		<-done
		f.expectStates(Running, Running, Running)
		if f.life(a).now().workers != 2 {
			t.Errorf("%d workers", f.life(a).now().workers)
		}
	})
}

func TestNewerConfigurationSupersedesOneThatIsBeingApplied(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.set(a, behaviour{makeTakes: 5 * time.Second, syncTakes: 5 * time.Second, drains: 5 * time.Second})
		f.lead(true)
		_, first := f.edit(nil)
		time.Sleep(time.Second) // it is being made
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Workers = 8 })
		time.Sleep(5 * time.Second) // it starts
		f.expectStates(Starting, Running, Running)
		if f.life(a).now().workers != 8 {
			t.Errorf("%d workers, want the newest number", f.life(a).now().workers)
		}
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Period.Duration = 1 })
		f.expectStates(Stopping, Running, Running)
		f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Period.Duration = 2 })
		_, last := f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Period.Duration = 3 })
		f.expectSettled(first, false)
		time.Sleep(15 * time.Second)
		f.expectSettled(last, true)
		f.expectSettled(first, true)
		if f.madeOf(a) != 2 || f.life(a).now().section.Period.Duration != 3 {
			t.Errorf("%d lives were made, the last with period %v", f.madeOf(a), f.life(a).now().section.Period.Duration)
		}
	})
}

func TestPendingSettingsKeepTheirFirstValue(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.lead(true)
		f.edit(nil)
		plan, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			cfg.LeaderElection.ResourceName = "other"
			section(cfg, a).Workers = 2
		})
		f.expectSettled(settled, true)
		if len(plan) != 2 || plan[0].Action != Pending || plan[0].Setting != "leaderElection.resourceName" || plan[1].Action != Resize {
			t.Errorf("plan %v", plan)
		}
		effective, pending := f.Effective()
		if effective.LeaderElection.ResourceName != "kube-controller-manager" || section(effective, a).Workers != 2 {
			t.Errorf("effective %+v", effective.LeaderElection)
		}
		want := PendingSetting{"leaderElection.resourceName", "kube-controller-manager", "other"}
		if len(pending) != 1 || pending[0] != want {
			t.Errorf("pending %v, want %v", pending, want)
		}
		f.edit(nil) // still pending
		if _, pending := f.Effective(); len(pending) != 1 {
			t.Errorf("pending %v", pending)
		}
		plan, _ = f.edit(func(cfg *schema.ControllerManagerConfiguration) {
			cfg.LeaderElection.ResourceName = "kube-controller-manager"
		})
		if _, pending := f.Effective(); len(pending) != 0 || len(plan) != 0 {
			t.Errorf("taken back: pending %v, plan %v", pending, plan)
		}
	})
}

func TestFiveHundredStartsAndStopsLeaveNothingBehind(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		f.lead(true)
		f.edit(nil)
		f.expectStates(Running, Running, Running)
		other := f.life(b)
		for range 500 {
			_, settled := f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = false })
			<-settled
			_, settled = f.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, a).Enabled = true })
			<-settled
		}
		f.expectStates(Running, Running, Running)
		status, _ := f.Lookup(a)
		if f.madeOf(a) != 501 || status.Restarts != 500 {
			t.Errorf("%d lives were made, %d restarts", f.madeOf(a), status.Restarts)
		}
		if f.life(b) != other || f.living() != 3 || waiters(f) != 0 {
			t.Errorf("%d lives, %d waiters are left", f.living(), waiters(f))
		}
	})
}

func waiters(f *fixture) int {
	f.Supervisor.mu.Lock()
	defer f.Supervisor.mu.Unlock()
	return len(f.waiters)
}
