package supervisor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Whatever happens in whatever order, the supervisor ends up where the newest
// configuration wants it, and on the way there are never two lives of one
// controller, no life reconciles without leadership, and no life is touched that
// nothing concerns. The fake lives check the first two, expectQuiet the rest.
func TestRandomSequences(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			(&randomRun{fixture: newFixture(t, nil), rand: rand.New(rand.NewPCG(seed, 7)), seed: seed}).run()
		})
		if t.Failed() {
			t.Fatalf("seed %d failed", seed)
		}
	}
}

type randomRun struct {
	*fixture
	rand *rand.Rand
	seed uint64
	// touched controllers may have another life than before the last quiet moment.
	touched map[string]bool
	history []string
}

func (r *randomRun) note(format string, args ...any) {
	r.history = append(r.history, fmt.Sprintf(format, args...))
}

func (r *randomRun) run() {
	r.touched = map[string]bool{}
	lives := map[string]*fakeLife{}
	for range 12 {
		for range 1 + r.rand.IntN(8) {
			r.act()
			if r.rand.IntN(2) == 0 {
				time.Sleep(time.Duration(r.rand.IntN(8_000)) * time.Millisecond)
			}
		}
		r.expectQuiet(lives)
	}
	// Lives that outlive everything are replaced, so that none may be stuck at the end.
	for _, name := range fakeNames {
		r.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, name).Period.Duration++ })
		r.touched[name] = true
	}
	r.expectQuiet(lives)
	if err := r.end(); err != nil {
		r.t.Errorf("the supervisor ended with: %v", err)
	}
	if n := r.living(); n != 0 {
		r.t.Errorf("%d lives are left", n)
	}
	if r.t.Failed() {
		r.t.Logf("seed %d: %v", r.seed, r.history)
	}
}

func (r *randomRun) act() {
	name := fakeNames[r.rand.IntN(len(fakeNames))]
	switch r.rand.IntN(9) {
	case 0:
		leading := r.rand.IntN(2) == 0
		r.note("lead %t", leading)
		if leading != r.leading {
			r.touchAll()
		}
		r.fixture.lead(leading)
	case 1, 2:
		enabled := r.rand.IntN(2) == 0
		r.note("%s enabled %t", name, enabled)
		r.edit(func(cfg *schema.ControllerManagerConfiguration) {
			if section(cfg, name).Enabled != enabled {
				r.touched[name] = true
			}
			section(cfg, name).Enabled = enabled
		})
	case 3:
		r.note("%s restart", name)
		r.touched[name] = true
		r.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, name).Period.Duration++ })
	case 4:
		workers := 1 + r.rand.IntN(50)
		r.note("%s workers %d", name, workers)
		r.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, name).Workers = workers })
	case 5:
		r.note("%s live", name)
		r.edit(func(cfg *schema.ControllerManagerConfiguration) { section(cfg, name).Limits.Low++ })
	case 6:
		r.edit(func(cfg *schema.ControllerManagerConfiguration) {
			standby := []schema.Standby{schema.StandbyWarm, schema.StandbyCold}[r.rand.IntN(2)]
			r.note("standby %s", standby)
			if cfg.LeaderElection.Standby != standby && !r.leading {
				r.touchAll()
			}
			cfg.LeaderElection.Standby = standby
			cfg.Controllers.StartInterval.Duration = time.Duration(r.rand.IntN(3)*2) * time.Second
		})
	case 7:
		b := r.behaviour()
		r.note("%s behaves %+v", name, b)
		r.set(name, b)
	case 8:
		r.note("recheck")
		r.Recheck()
	}
}

func (r *randomRun) touchAll() {
	for _, name := range fakeNames {
		r.touched[name] = true
	}
}

func (r *randomRun) behaviour() behaviour {
	seconds := func(n int) time.Duration { return time.Duration(r.rand.IntN(n)) * time.Second }
	b := behaviour{}
	switch r.rand.IntN(6) {
	case 0:
		b.makeErr = fmt.Errorf("no luck")
	case 1:
		b.makePanic = true
	case 2:
		b.failsAfter, b.panics, b.returnsNil = time.Second+seconds(10), r.rand.IntN(2) == 0, r.rand.IntN(2) == 0
	case 3:
		b.drains = seconds(60)
	case 4:
		b.drains, b.outlives = time.Minute+seconds(60), seconds(120)
	}
	b.makeTakes, b.syncTakes, b.applyTakes = seconds(3), seconds(6), seconds(3)
	b.applyPanics = r.rand.IntN(8) == 0
	return b
}

// expectQuiet lets all lives behave from now on and waits until everything has
// come to rest.
func (r *randomRun) expectQuiet(lives map[string]*fakeLife) {
	for _, name := range fakeNames {
		r.set(name, behaviour{})
	}
	// Lives that behave badly are still about; those that fail are given the
	// time to do so, and the back-off to pass.
	time.Sleep(time.Hour)
	_, settled := r.edit(nil)
	r.expectSettled(settled, true)
	for _, name := range fakeNames {
		own := section(r.cfg, name)
		wanted := Disabled
		switch {
		case own.Enabled && r.leading:
			wanted = Running
		case own.Enabled:
			wanted = Standby
		}
		status, _ := r.Lookup(name)
		if status.State != wanted {
			r.t.Errorf("%s is %s (%s), want %s", name, status.State, status.Reason, wanted)
		}
		life := r.life(name)
		hasLife := wanted == Running || wanted == Standby && r.cfg.LeaderElection.Standby == schema.StandbyWarm
		if (life != nil) != hasLife {
			r.t.Errorf("%s has a life: %t, want %t", name, life != nil, hasLife)
		}
		if life != nil {
			life := life.now()
			if life.workers != own.Workers || life.live.Limits.Low != own.Limits.Low || life.section.Period != own.Period {
				r.t.Errorf("%s works by %d workers, %d, %v; want %+v", name, life.workers, life.live.Limits.Low, life.section.Period, own)
			}
			if life.reconciling != (wanted == Running) {
				r.t.Errorf("%s reconciles: %t", name, life.reconciling)
			}
		}
		if before := lives[name]; before != nil && before != life && !r.touched[name] && !before.badlyBehaved() {
			r.t.Errorf("%s was restarted though nothing concerned it", name)
		}
		lives[name] = life
		r.touched[name] = false
	}
}

// badlyBehaved lives end without anybody wanting it.
func (l *fakeLife) badlyBehaved() bool { return l.b.failsAfter > 0 || l.b.applyPanics }
