// Package podcensus counts the pods of a test by a watch, so that no moment of
// their number is missed.
package podcensus

import (
	"context"
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
)

// Census of the pods of a namespace, by their label app.
type Census struct {
	mu   sync.Mutex
	apps map[string]*tally
}

// tally of the pods of one app.
type tally struct {
	active map[types.UID]bool
	// created are all pods that ever were.
	created map[types.UID]bool
	// fewest and most pods that were active at once, since the last Reset.
	fewest, most int
}

// Counts of the pods of one app. Active pods are neither finished nor being deleted.
type Counts struct {
	Active int
	// Fewest and Most that were active at once, since the last Reset.
	Fewest, Most int
	// Created are all pods that ever were.
	Created int
}

// Take takes a census of namespace until the test ends.
func Take(t testing.TB, client kubernetes.Interface, namespace string) *Census {
	t.Helper()
	s := &Census{apps: map[string]*tally{}}
	Follow(t, client, namespace, s.note)
	return s
}

// Follow calls note with each pod of namespace and then with each event, one
// after the other, until the test ends.
func Follow(t testing.TB, client kubernetes.Interface, namespace string, note func(watch.EventType, *v1.Pod)) {
	t.Helper()
	pods := client.CoreV1().Pods(namespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	// A census that ended unnoticed would show a number that stands still.
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: pods.Watch,
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	for i := range list.Items {
		note(watch.Added, &list.Items[i])
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if pod, ok := event.Object.(*v1.Pod); ok {
				note(event.Type, pod)
			} else if ctx.Err() == nil {
				t.Errorf("the watch of pods broke: %+v", event.Object)
			}
		}
		if ctx.Err() == nil {
			t.Error("the watch of pods ended")
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (s *Census) note(event watch.EventType, pod *v1.Pod) {
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

func (s *Census) app(name string) *tally {
	t := s.apps[name]
	if t == nil {
		t = &tally{active: map[types.UID]bool{}, created: map[types.UID]bool{}}
		s.apps[name] = t
	}
	return t
}

// Reset begins a new period for Fewest and Most.
func (s *Census) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.apps {
		t.fewest, t.most = len(t.active), len(t.active)
	}
}

// Of returns the counts of app.
func (s *Census) Of(app string) Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.app(app)
	return Counts{Active: len(t.active), Fewest: t.fewest, Most: t.most, Created: len(t.created)}
}

// Has returns an error unless app has count active pods.
func (s *Census) Has(app string, count int) error {
	if active := s.Of(app).Active; active != count {
		return fmt.Errorf("%s has %d active pods, want %d", app, active, count)
	}
	return nil
}
