package replicaset_test

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

// census watches the pods of a namespace, so that no moment of their number is missed.
type census struct {
	mu   sync.Mutex
	apps map[string]*tally
}

// tally of the pods of one app.
type tally struct {
	active map[types.UID]bool
	// created are all pods that ever were.
	created map[types.UID]bool
	// fewest and most pods that were active at once, since reset.
	fewest, most int
}

// watchPods takes a census until the test ends.
func (c *cluster) watchPods() *census {
	c.t.Helper()
	pods := c.client.CoreV1().Pods(c.ns)
	list, err := pods.List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	// A census that ended unnoticed would show a number that stands still.
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: pods.Watch,
	})
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	s := &census{apps: map[string]*tally{}}
	for i := range list.Items {
		s.note(watch.Added, &list.Items[i])
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if pod, ok := event.Object.(*v1.Pod); ok {
				s.note(event.Type, pod)
			} else if ctx.Err() == nil {
				c.t.Errorf("the watch of pods broke: %s", inJSON(event.Object))
			}
		}
		if ctx.Err() == nil {
			c.t.Error("the watch of pods ended")
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func (s *census) note(event watch.EventType, pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.app(pod.Labels["app"])
	t.created[pod.UID] = true
	if event != watch.Deleted && availability.IsActive(pod) {
		t.active[pod.UID] = true
	} else {
		delete(t.active, pod.UID)
	}
	t.fewest, t.most = min(t.fewest, len(t.active)), max(t.most, len(t.active))
}

func (s *census) app(name string) *tally {
	t := s.apps[name]
	if t == nil {
		t = &tally{active: map[types.UID]bool{}, created: map[types.UID]bool{}}
		s.apps[name] = t
	}
	return t
}

// reset begins a new period for fewest and most.
func (s *census) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.apps {
		t.fewest, t.most = len(t.active), len(t.active)
	}
}

// of returns the active pods of app, and the fewest, most and created ones.
func (s *census) of(app string) (active, fewest, most, created int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.app(app)
	return len(t.active), t.fewest, t.most, len(t.created)
}

// has returns an error until app has count active pods.
func (s *census) has(app string, count int) error {
	if active, _, _, _ := s.of(app); active != count {
		return fmt.Errorf("%s has %d active pods, want %d", app, active, count)
	}
	return nil
}
