package podgc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// deaths are the pods that were seen to go, by UID.
type deaths struct {
	mu   sync.Mutex
	pods map[types.UID]string
}

// record what happens to pods until the test ends.
func (w *world) record() *deaths {
	w.t.Helper()
	d := &deaths{pods: map[types.UID]string{}}
	harness.Follow(w.t, w.Admin.CoreV1().Pods(w.Namespace), metav1.ListOptions{}, func(event watch.EventType, pod *v1.Pod) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if event == watch.Deleted || pod.DeletionTimestamp != nil {
			d.pods[pod.UID] = pod.Name
		}
	})
	return d
}

// check that none of the living has gone, and all of the doomed have.
func (d *deaths) check(living, doomed map[types.UID]string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, name := range living {
		if _, gone := d.pods[uid]; gone {
			return fmt.Errorf("%s was deleted: %w", name, errMustLive)
		}
	}
	for uid, name := range doomed {
		if _, gone := d.pods[uid]; !gone {
			return fmt.Errorf("%s has not been deleted", name)
		}
	}
	return nil
}

var errMustLive = errors.New("it must live")

func TestReloadsAtAnyMomentDeleteNothingElse(t *testing.T) {
	t.Parallel()
	const (
		rounds    = 30
		threshold = 10
	)
	w := start(t, threshold)
	seen := w.record()
	living, doomed := map[types.UID]string{}, map[types.UID]string{}
	lives := func(pod *v1.Pod) { living[pod.UID] = pod.Name }
	dies := func(pod *v1.Pod) { doomed[pod.UID] = pod.Name }

	w.node("flaps", v1.ConditionTrue)
	w.node("stays", v1.ConditionFalse)
	lives(w.pod("on-flaps", w.on("flaps"), in(v1.PodRunning)))
	lives(w.pod("on-stays", w.on("stays"), in(v1.PodRunning)))
	lives(w.pod("unscheduled"))
	stop := w.controller.Reload(uint64(time.Now().UnixNano()), 50, 10)
	var finished []*v1.Pod
	for round := range rounds {
		// A node that goes for good takes its pods with it; one that comes back does not.
		node := fmt.Sprintf("node-%d", round)
		w.node(node, v1.ConditionTrue)
		orphan := w.pod("on-"+node, w.on(node), in(v1.PodRunning))
		dies(orphan)
		w.deleteNode(node)
		w.deleteNode("flaps")
		w.node("flaps", v1.ConditionTrue)

		finished = append(finished, w.pod(fmt.Sprintf("finished-%02d", round), in(v1.PodSucceeded)))
		terminating := w.pod(fmt.Sprintf("terminating-%d", round), w.on("stays"), in(v1.PodRunning))
		dies(terminating)
		w.deletePod(terminating.Name, 300)
		if round == 0 {
			w.taint("stays", v1.TaintEffectNoExecute)
		}

		// The pods of vanished nodes are made again elsewhere, under their names.
		if round > 3 {
			name := fmt.Sprintf("on-node-%d", round-4)
			w.forward(name)
			lives(w.pod(name, w.on("flaps"), in(v1.PodRunning)))
		}
		w.clock.Step(interval)
	}
	stop()
	for i, pod := range finished {
		if i < rounds-threshold {
			dies(pod)
		} else {
			lives(pod)
		}
	}
	w.passUntil("end of everything that should go", func() error {
		err := seen.check(living, doomed)
		if errors.Is(err, errMustLive) {
			t.Fatal(err)
		}
		return err
	})
	w.pass()
	w.pass()
	if err := seen.check(living, doomed); err != nil {
		t.Error(err)
	}
}

// forward sets the clock forward until a pod is gone.
func (w *world) forward(name string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "end of "+name, func(context.Context) error {
		if w.get(name) == nil {
			return nil
		}
		w.clock.Step(interval)
		return errors.New("it is still there")
	})
}
