// Package podcensus counts the pods of a test by a watch, so that no moment of
// their number is missed.
package podcensus

import (
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
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
	harness.Follow(t, client.CoreV1().Pods(namespace), metav1.ListOptions{}, s.note)
	return s
}

func (s *Census) note(event watch.EventType, pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.app(pod.Labels["app"])
	t.created[pod.UID] = true
	if event != watch.Deleted && isActive(pod) {
		t.active[pod.UID] = true
	} else {
		delete(t.active, pod.UID)
	}
	t.fewest, t.most = min(t.fewest, len(t.active)), max(t.most, len(t.active))
}

// isActive is written out here, not shared with what is tested.
func isActive(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
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
