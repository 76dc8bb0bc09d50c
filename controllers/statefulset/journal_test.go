package statefulset_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// journal follows the pods of ordered sets by a watch, and is the judge of
// every single event: no ordinal runs twice, and none out of its turn.
type journal struct {
	t *testing.T

	mu   sync.Mutex
	sets map[string]*entries
}

// entries are what the journal has of one set.
type entries struct {
	// pods that are there, by ordinal.
	pods map[int]entry
	// created are all pods that ever were.
	created int
	// loose is set when others delete pods of the set too, so that order is not to be judged.
	loose bool
}

type entry struct {
	uid                types.UID
	ready, terminating bool
	revision           string
}

// follow begins a journal of the namespace. It makes every pod ready as soon as
// it is there, as a kubelet does, and deletes those that a request which was cut
// off has left half deleted, as the collector of lost pods does.
func (c *cluster) follow() *journal {
	c.t.Helper()
	j := &journal{t: c.t, sets: map[string]*entries{}}
	client, ns := c.client, c.ns
	ctx := context.Background() // that of the test ends before the watch does
	harness.Follow(c.t, client.CoreV1().Pods(ns), metav1.ListOptions{}, func(event watch.EventType, pod *v1.Pod) {
		j.note(event, pod)
		var err error
		switch {
		case event == watch.Added && pod.DeletionTimestamp == nil:
			err = setPhase(ctx, client, ns, pod.Name, v1.PodRunning, true, time.Now().Add(-time.Minute))
		case event == watch.Modified && pod.DeletionTimestamp != nil:
			err = client.CoreV1().Pods(ns).Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: ptr.To[int64](0),
				Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
			})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			c.t.Errorf("%s of pod %s: %v", event, pod.Name, err)
		}
	})
	return j
}

func (j *journal) note(event watch.EventType, pod *v1.Pod) {
	j.mu.Lock()
	defer j.mu.Unlock()
	set := j.set(pod.Labels["app"])
	var ordinal int
	if _, err := fmt.Sscanf(pod.Name, pod.Labels["app"]+"-%d", &ordinal); err != nil {
		j.t.Errorf("pod %s: %v", pod.Name, err)
		return
	}
	now := entry{uid: pod.UID, ready: availability.IsReady(pod), terminating: pod.DeletionTimestamp != nil, revision: revisionOf(pod)}
	before, there := set.pods[ordinal]
	if event == watch.Added {
		set.created++
		switch {
		case there:
			j.t.Errorf("%s was created while it was there", pod.Name)
		case !set.loose:
			set.judgeCreation(j.t, pod.Name, ordinal)
		}
	}
	goes := event == watch.Deleted || now.terminating
	if goes && !before.terminating && !set.loose {
		set.judgeDeletion(j.t, pod.Name, ordinal, now.revision)
	}
	if event == watch.Deleted {
		delete(set.pods, ordinal)
		return
	}
	set.pods[ordinal] = now
}

// judgeCreation wants all predecessors ready.
func (e *entries) judgeCreation(t *testing.T, name string, ordinal int) {
	for i := range ordinal {
		if pod, there := e.pods[i]; !there || !pod.ready || pod.terminating {
			t.Errorf("%s was created while %d was %+v", name, i, pod)
		}
	}
}

// judgeDeletion wants all others ready, and the successors, if there are any, of another revision.
func (e *entries) judgeDeletion(t *testing.T, name string, ordinal int, revision string) {
	for i, pod := range e.pods {
		if i == ordinal {
			continue
		}
		if !pod.ready || pod.terminating {
			t.Errorf("%s was deleted while %d was %+v", name, i, pod)
		}
		if i > ordinal && pod.revision == revision {
			t.Errorf("%s was deleted before %d, which is of the same revision", name, i)
		}
	}
}

func (j *journal) set(name string) *entries {
	set := j.sets[name]
	if set == nil {
		set = &entries{pods: map[int]entry{}}
		j.sets[name] = set
	}
	return set
}

// loosen ends the judgement of order for a set.
func (j *journal) loosen(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.set(name).loose = true
}

// has wants a number of pods of a set, all ready, and so many that ever were.
func (j *journal) has(name string, pods, created int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	set := j.set(name)
	ready := 0
	for _, pod := range set.pods {
		if pod.ready && !pod.terminating {
			ready++
		}
	}
	if len(set.pods) != pods || ready != pods || set.created != created {
		return fmt.Errorf("%s: %d pods, %d ready, %d created, want %d, %d created", name, len(set.pods), ready, set.created, pods, created)
	}
	return nil
}
