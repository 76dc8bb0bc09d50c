package life

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standby is a life without informers. Its queue has as many keys as it is made with.
type standby struct {
	*Life
	queue  *work.Queue[string]
	memory controller.Memory
	seen   []string
}

func (s *standby) make(t *testing.T, keys int) {
	t.Helper()
	kind := schema.TTLAfterFinishedControllerSection()
	life, err := New(Options{
		Descriptor: controller.Descriptor{
			Section: kind,
			New: func(env controller.Env, _ schema.Section) (*controller.Controller, error) {
				s.queue = work.NewQueue(env.Work, work.Options[string]{
					Name:         "jobs",
					FixedWorkers: 1,
					Reconcile: func(_ context.Context, key string) (work.Result, error) {
						s.seen = append(s.seen, key)
						return work.Result{}, nil
					},
				})
				for i := range keys {
					s.queue.AddInitial(fmt.Sprint("lives-", i))
				}
				return nil, nil
			},
		},
		Section: kind.New(),
		Config:  &schema.ControllerManagerConfiguration{},
		Marks:   client.NewMarks(),
		Memory:  &s.memory,
		Pool:    informers.NewPool(informers.Options{Logger: slog.New(slog.DiscardHandler)}),
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Life = life
}

func TestOutgrownStandbyLeavesNothingToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &standby{}
		s.make(t, 5)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		run := func(lead chan struct{}) {
			life := s.Life
			go func() { ended <- life.Run(ctx, t.Context(), lead) }()
			synctest.Wait()
		}
		run(make(chan struct{}))
		for i := range 2*6 + outgrownMin - 5 {
			s.queue.Add(fmt.Sprint("gone-", i))
		}
		if s.Outgrown() {
			t.Errorf("outgrown with %d keys", s.Work().Depth)
		}
		s.queue.Add("one more")
		if !s.Outgrown() {
			t.Errorf("not outgrown with %d keys", s.Work().Depth)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}

		s.make(t, 5)
		ctx, stop = context.WithCancel(t.Context())
		lead := make(chan struct{})
		run(lead)
		if s.Outgrown() {
			t.Error("the next is outgrown as well")
		}
		close(lead)
		synctest.Wait()
		if want := []string{"lives-0", "lives-1", "lives-2", "lives-3", "lives-4"}; !slices.Equal(s.seen, want) {
			t.Errorf("reconciled %q, want %q", s.seen, want)
		}
		for i := range 2 * outgrownMin {
			s.queue.AddInitial(fmt.Sprint("many-", i))
		}
		if s.Outgrown() {
			t.Error("outgrown, although it works")
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
