package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// fakeSection is the section of the fake controllers.
type fakeSection struct {
	schema.ControllerSettings `json:",inline"`
	Period                    metav1.Duration `json:"period"`
	Note                      string          `json:"note"`
	Limits                    struct {
		High int `json:"high"`
		Low  int `json:"low"`
	} `json:"limits"`
}

func fakeType(name string) schema.SectionType {
	return schema.SectionType{Name: name, New: func() schema.Section {
		return &fakeSection{ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 5}}
	}}
}

// behaviour of the lives of one controller that are made from now on.
type behaviour struct {
	makeErr   error
	makePanic bool
	makeTakes time.Duration
	// syncTakes is how long it takes from lead to ready.
	syncTakes time.Duration
	// failsAfter being ready, with an error, or by returning nil.
	failsAfter  time.Duration
	returnsNil  bool
	panics      bool
	applyPanics bool
	applyTakes  time.Duration
	// drains is how long a stop takes if the work context lives, outlives how
	// long it ignores the end of the work context.
	drains, outlives time.Duration
	runErr           error
	// outgrown is said of the first life only.
	outgrown bool
}

// world is where the fake lives are, and checks what must never be.
type world struct {
	t  *testing.T
	mu sync.Mutex
	// leading is set by the test around SetLeading.
	leading bool
	// lostAt is when it last became false.
	lostAt    time.Time
	behaviour map[string]behaviour
	lives     map[string]*fakeLife
	made      map[string]int
	order     []string // of starts, with their time
	start     time.Time
}

func newWorld(t *testing.T) *world {
	return &world{t: t, behaviour: map[string]behaviour{}, lives: map[string]*fakeLife{}, made: map[string]int{}, start: time.Now()}
}

type fakeLife struct {
	world   *world
	name    string
	section *fakeSection
	b       behaviour
	ready   chan struct{}

	// guarded by world.mu
	workers     int
	live        fakeSection
	applied     int
	reconciling bool
	ended       bool
	cause       error
	workCause   error
	longest     time.Duration
}

func (w *world) set(name string, b behaviour) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behaviour[name] = b
}

func (w *world) factory(name string, section schema.Section, cfg *schema.ControllerManagerConfiguration) (Life, error) {
	w.mu.Lock()
	b := w.behaviour[name]
	if section != cfg.Controllers.Sections[name] {
		w.t.Errorf("%s: section is not that of the configuration", name)
	}
	if other := w.lives[name]; other != nil {
		w.t.Errorf("%s: a second life is made beside the first", name)
	}
	w.mu.Unlock()
	time.Sleep(b.makeTakes)
	if b.makePanic {
		panic("no controller")
	}
	if b.makeErr != nil {
		return nil, b.makeErr
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	own := section.(*fakeSection)
	l := &fakeLife{world: w, name: name, section: own, b: b, ready: make(chan struct{}), workers: own.Workers, live: *own}
	w.lives[name] = l
	w.made[name]++
	return l, nil
}

// begin fails the test when a reconcile happens while the process does not lead.
// At the very instant of the loss the life may not have been told yet.
func (l *fakeLife) begin() {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	if !l.world.leading && !time.Now().Equal(l.world.lostAt) {
		l.world.t.Errorf("%s: reconciles while the process does not lead", l.name)
	}
	l.reconciling = true
	l.world.order = append(l.world.order, fmt.Sprintf("%s@%v", l.name, time.Since(l.world.start)))
}

func (l *fakeLife) Run(ctx, workCtx context.Context, lead <-chan struct{}) error {
	defer func() {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		l.reconciling, l.ended = false, true
		if l.world.lives[l.name] == l {
			delete(l.world.lives, l.name)
		}
	}()
	if err := l.until(ctx, lead); err != nil {
		return l.stop(ctx, workCtx)
	}
	if err := l.pause(ctx, l.b.syncTakes); err != nil {
		return l.stop(ctx, workCtx)
	}
	if ctx.Err() == nil {
		l.begin()
		close(l.ready)
	}
	if l.b.failsAfter > 0 {
		if err := l.pause(ctx, l.b.failsAfter); err == nil {
			switch {
			case l.b.panics:
				panic("boom")
			case l.b.returnsNil:
				return nil
			}
			return errors.New("no luck")
		}
	}
	<-ctx.Done()
	return l.stop(ctx, workCtx)
}

func (l *fakeLife) until(ctx context.Context, what <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-what:
		return nil
	}
}

func (l *fakeLife) pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (l *fakeLife) stop(ctx, workCtx context.Context) error {
	if l.pause(workCtx, l.b.drains) != nil {
		l.world.mu.Lock()
		// Given up: nothing reconciles any more, whatever is left over.
		l.reconciling = false
		l.world.mu.Unlock()
		time.Sleep(l.b.outlives)
	}
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.cause, l.workCause = context.Cause(ctx), context.Cause(workCtx)
	return l.b.runErr
}

func (l *fakeLife) Ready() <-chan struct{} { return l.ready }

func (l *fakeLife) Resize(workers int) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.workers = workers
	l.live.Workers = workers
}

func (l *fakeLife) ApplyLive(section schema.Section) {
	time.Sleep(l.b.applyTakes)
	if l.b.applyPanics {
		panic("not live")
	}
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.live = *section.(*fakeSection)
	l.applied++
}

func (l *fakeLife) Outgrown() bool {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return l.world.behaviour[l.name].outgrown && l.world.made[l.name] == 1
}

func (l *fakeLife) Work() work.Status {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	s := work.Status{Wanted: l.workers, Running: l.workers, Longest: l.longest}
	if l.longest > 0 {
		s.Busy, s.LongestKey = 1, "ns/slow"
	}
	return s
}

func (l *fakeLife) Informers() []string { return []string{"pods"} }

func (l *fakeLife) Handler() http.Handler { return http.NotFoundHandler() }

// now is what the life is like at this moment.
func (l *fakeLife) now() fakeLife {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return *l
}

// lasts makes the life say that a reconcile has run for that long.
func (l *fakeLife) lasts(d time.Duration) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.longest = d
}

// living returns how many lives there are, madeOf how many a controller had.
func (w *world) living() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lives)
}

func (w *world) madeOf(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made[name]
}

// starts returns who began to reconcile, and when, in order.
func (w *world) starts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.order)
}

// life returns the life that controller has now.
func (w *world) life(name string) *fakeLife {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives[name]
}

// fixture is a supervisor with fake controllers a, b, c that runs.
type fixture struct {
	*world
	*Supervisor
	cfg    *schema.ControllerManagerConfiguration
	cancel context.CancelFunc
	result chan error

	changesMu sync.Mutex
	changes   []string
}

var fakeNames = []string{"a-controller", "b-controller", "c-controller"}

func descriptors() []controller.Descriptor {
	all := make([]controller.Descriptor, len(fakeNames))
	for i, name := range fakeNames {
		all[i] = controller.Descriptor{Section: fakeType(name), LiveFields: []string{"note", "limits.low"}}
	}
	return all
}

var defaultConfig = sync.OnceValue(func() *schema.ControllerManagerConfiguration {
	return schema.NewScheme().Default()
})

// newConfig is the default configuration with the fake controllers in place of all others.
func newConfig() *schema.ControllerManagerConfiguration {
	cfg := *defaultConfig()
	cfg.Controllers.Sections = map[string]schema.Section{}
	for _, name := range fakeNames {
		cfg.Controllers.Sections[name] = fakeType(name).New()
	}
	return &cfg
}

func newFixture(t *testing.T, change func(*Options)) *fixture {
	f := &fixture{world: newWorld(t), cfg: newConfig(), result: make(chan error, 1)}
	o := Options{
		Descriptors: descriptors(),
		Factory:     f.factory,
		Logger:      slog.New(slog.DiscardHandler),
		Rand:        func() float64 { return 0.5 },
		OnStateChange: func(name string, from, to State, reason string) {
			f.changesMu.Lock()
			defer f.changesMu.Unlock()
			f.changes = append(f.changes, fmt.Sprintf("%s %s→%s", name, from, to))
		},
	}
	if change != nil {
		change(&o)
	}
	f.Supervisor = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() { f.result <- f.Run(ctx) }()
	return f
}

// lead is SetLeading with the world knowing.
func (f *fixture) lead(leading bool) {
	f.mu().Lock()
	if f.leading && !leading {
		f.lostAt = time.Now()
	}
	f.leading = leading
	f.mu().Unlock()
	f.SetLeading(leading)
}

func (f *fixture) mu() *sync.Mutex { return &f.world.mu }

// edit applies a changed copy of the configuration.
func (f *fixture) edit(change func(*schema.ControllerManagerConfiguration)) ([]Step, <-chan struct{}) {
	f.cfg = f.cfg.DeepCopy()
	if change != nil {
		change(f.cfg)
	}
	return f.Apply(f.cfg)
}

func section(cfg *schema.ControllerManagerConfiguration, name string) *fakeSection {
	return cfg.Controllers.Sections[name].(*fakeSection)
}

// end stops the supervisor and returns what Run returned.
func (f *fixture) end() error {
	f.cancel()
	return <-f.result
}

func (f *fixture) expectStates(want ...State) {
	f.t.Helper()
	synctest.Wait()
	var got []State
	for _, name := range fakeNames {
		status, _ := f.Lookup(name)
		got = append(got, status.State)
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("states %v, want %v", got, want)
	}
}

func (f *fixture) expectState(name string, want State, reason string) {
	f.t.Helper()
	synctest.Wait()
	status, ok := f.Lookup(name)
	if !ok || status.State != want || status.Reason != reason {
		f.t.Errorf("%s is %s (%s), want %s (%s)", name, status.State, status.Reason, want, reason)
	}
}

// changed returns and forgets the changes of state.
func (f *fixture) changed() []string {
	f.changesMu.Lock()
	defer f.changesMu.Unlock()
	changes := f.changes
	f.changes = nil
	return changes
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (f *fixture) expectSettled(c <-chan struct{}, want bool) {
	f.t.Helper()
	if got := isClosed(c); got != want {
		f.t.Errorf("settled: %t, want %t", got, want)
	}
}
