package daemonset_test

import (
	"context"
	"fmt"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// census counts the pods of a namespace by app and node, by a watch, so that no
// moment is missed.
type census struct {
	mu   sync.Mutex
	apps map[string]*tally
}

// tally of the pods of one app.
type tally struct {
	// live pods are neither finished nor being deleted.
	live    map[string]map[types.UID]bool
	ready   map[string]map[types.UID]bool
	created map[types.UID]bool
	// mostOnNode are the live pods of one node, fewestReady the nodes with a ready
	// pod, since the last reset.
	mostOnNode, fewestReady int
}

func (c *cluster) follow() *census {
	c.t.Helper()
	s := &census{apps: map[string]*tally{}}
	harness.Follow(c.t, c.client.CoreV1().Pods(c.ns), metav1.ListOptions{}, s.note)
	return s
}

func (s *census) note(event watch.EventType, pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, node := s.app(pod.Labels["app"]), targetOf(pod)
	t.created[pod.UID] = true
	live := event != watch.Deleted && availability.IsActive(pod)
	set(t.live, node, pod.UID, live)
	set(t.ready, node, pod.UID, live && availability.IsReady(pod))
	t.mostOnNode = max(t.mostOnNode, len(t.live[node]))
	t.fewestReady = min(t.fewestReady, len(t.ready))
}

func set(of map[string]map[types.UID]bool, node string, uid types.UID, is bool) {
	if is {
		if of[node] == nil {
			of[node] = map[types.UID]bool{}
		}
		of[node][uid] = true
		return
	}
	delete(of[node], uid)
	if len(of[node]) == 0 {
		delete(of, node)
	}
}

func (s *census) app(name string) *tally {
	t := s.apps[name]
	if t == nil {
		t = &tally{live: map[string]map[types.UID]bool{}, ready: map[string]map[types.UID]bool{}, created: map[types.UID]bool{}}
		s.apps[name] = t
	}
	return t
}

// reset begins a new period for the most and the fewest.
func (s *census) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.apps {
		t.mostOnNode, t.fewestReady = 0, len(t.ready)
		for onNode := range maps.Values(t.live) {
			t.mostOnNode = max(t.mostOnNode, len(onNode))
		}
	}
}

func (s *census) available(app string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.app(app).ready)
}

func (s *census) fewest(app string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.app(app).fewestReady
}

func (s *census) mostOnNode(app string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.app(app).mostOnNode
}

func (s *census) created(app string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.app(app).created)
}

// has returns an error unless app has live pods on so many nodes.
func (s *census) has(app string, nodes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := len(s.app(app).live); got != nodes {
		return fmt.Errorf("%s has live pods on %d nodes, want %d", app, got, nodes)
	}
	return nil
}

// keepReady plays the kubelets until the test ends: pods of apps, all if none
// is named, get ready.
func (c *cluster) keepReady(apps ...string) {
	c.t.Helper()
	wanted := map[string]bool{}
	for _, app := range apps {
		wanted[app] = true
	}
	harness.Follow(c.t, c.client.CoreV1().Pods(c.ns), metav1.ListOptions{}, func(event watch.EventType, pod *v1.Pod) {
		if event == watch.Deleted || pod.DeletionTimestamp != nil || pod.Status.Phase != v1.PodPending ||
			len(apps) > 0 && !wanted[pod.Labels["app"]] {
			return
		}
		changed := pod.DeepCopy()
		ready(changed)
		_, err := c.client.CoreV1().Pods(c.ns).UpdateStatus(context.Background(), changed, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			c.t.Errorf("play the kubelet of %s: %v", pod.Name, err)
		}
	})
}
