package podgc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/podgc"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_TheOldestFinishedPodsGo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		threshold int
		third     func(*v1.Pod)
		goes      []int
	}{
		{"two of three", 1, in(v1.PodFailed), []int{0, 1}},
		{"evicted ones first", 2, evicted, []int{2}},
		{"none without a threshold", 0, in(v1.PodFailed), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			made := w.apart(in(v1.PodFailed), in(v1.PodSucceeded), test.third, in(v1.PodRunning))
			w.controller = w.Start(podgc.Descriptor(), section(test.threshold))
			w.pass()
			going := map[int]bool{}
			for _, i := range test.goes {
				going[i] = true
				w.passUntil("deletion", w.gone(made[i].Name))
			}
			w.pass()
			for i, pod := range made {
				if !going[i] {
					w.untouched(pod)
				}
			}
			if got, want := w.counted(deletionsTotal, "terminated"), float64(len(test.goes)); got != want {
				t.Errorf("%g deletions counted, want %g", got, want)
			}
		})
	}
}

func TestAcceptance01_TheThresholdIsLowered(t *testing.T) {
	t.Parallel()
	w := start(t, 12500)
	made := w.apart(in(v1.PodFailed), in(v1.PodSucceeded))
	w.pass()
	w.pass()
	w.untouched(made...)
	w.controller.ApplyLive(section(1))
	w.pass()
	if err := w.gone(made[0].Name)(); err != nil {
		t.Error(err)
	}
	w.pass()
	w.untouched(made[1])
}

func TestAcceptance02_OrphansFailWithADisruptionAndGo(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	w.node("n", v1.ConditionTrue)
	pending := w.pod("pending", w.on("n"), held)
	w.pod("succeeded", w.on("n"), held, in(v1.PodSucceeded))
	w.pod("failed", w.on("n"), held, in(v1.PodFailed))
	w.pod("free", w.on("n"))
	deleted := w.clock.Now()
	w.deleteNode("n")
	w.passUntil("deletion", w.gone("free"))

	for _, name := range []string{"pending", "succeeded", "failed", "free"} {
		if after := w.deletedAt(name).Sub(deleted); after < 40*time.Second || after > 80*time.Second {
			t.Errorf("%s was deleted %s after its node, want 40 s to 80 s", name, after)
		}
	}
	pod := w.terminating("pending")
	if pod.Status.Phase != v1.PodFailed || pod.Status.ObservedGeneration != pending.Generation {
		t.Errorf("phase %s of generation %d, want Failed of %d", pod.Status.Phase, pod.Status.ObservedGeneration, pending.Generation)
	}
	condition := disruption(pod)
	if condition == nil {
		t.Fatal("there is no condition DisruptionTarget")
	}
	if condition.Status != v1.ConditionTrue || condition.Reason != "DeletionByPodGC" || condition.Message != "PodGC: node no longer exists" ||
		condition.ObservedGeneration != 1 || condition.LastTransitionTime.Before(&pod.CreationTimestamp) {
		t.Errorf("condition %+v", condition)
	}
	for name, phase := range map[string]v1.PodPhase{"succeeded": v1.PodSucceeded, "failed": v1.PodFailed} {
		if pod := w.terminating(name); pod.Status.Phase != phase || disruption(pod) != nil {
			t.Errorf("%s: phase %s, condition %+v; want it as it was", name, pod.Status.Phase, disruption(pod))
		}
	}
	if got := w.counted(deletionsTotal, "orphaned"); got != 4 {
		t.Errorf("%g deletions counted, want 4", got)
	}

	// What is held is not deleted again and again, nor is its node looked up.
	w.pass()
	w.Proxy.Forget()
	for range 4 {
		w.pass()
	}
	if writes := w.Writes(pods.GroupResource()); len(writes) > 0 {
		t.Errorf("written again: %+v", writes)
	}
	for _, name := range []string{"pending", "succeeded", "failed"} {
		w.release(name)
	}
	w.passUntil("end", w.gone("pending", "succeeded", "failed"))
	if got := w.counted(errorsTotal, "orphaned"); got != 0 {
		t.Errorf("%g errors counted", got)
	}
}

func TestAcceptance03_PodsOfANodeThatReturnsLive(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	w.node("n", v1.ConditionTrue)
	pod := w.pod("p", w.on("n"), in(v1.PodRunning))
	missing := func() error {
		if len(w.state().MissingNodes) == 0 {
			return errors.New("no node is missing")
		}
		return nil
	}
	returned := func(context.Context) error {
		if missing := w.state().MissingNodes; len(missing) > 0 {
			return fmt.Errorf("missing: %v", missing)
		}
		return nil
	}

	w.deleteNode("n")
	w.passUntil("quarantine", missing)
	w.pass() // 20 s
	w.untouched(pod)
	w.node("n", v1.ConditionTrue)
	harness.Eventually(t, soon, "end of the quarantine", returned)

	// Lost again, it counts from the second loss.
	w.deleteNode("n")
	w.passUntil("quarantine", missing)
	again := w.state().MissingNodes[w.nodeName("n")]
	w.pass() // 20 s
	w.untouched(pod)
	w.node("n", v1.ConditionTrue)
	harness.Eventually(t, soon, "end of the quarantine", returned)
	for range 6 { // 2 min
		w.pass()
	}
	w.untouched(pod)

	w.deleteNode("n")
	w.passUntil("deletion", w.gone("p"))
	if at := w.deletedAt("p"); at.Sub(again) < 2*time.Minute {
		t.Errorf("deleted %s after the second loss of its node", at.Sub(again))
	}
}

func TestAcceptance04_TerminatingPodsOfANodeOutOfServiceGo(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	w.node("down", v1.ConditionFalse)
	w.node("unknown", v1.ConditionUnknown)
	w.node("ready", v1.ConditionTrue)
	w.pod("free", w.on("down"), in(v1.PodRunning))
	w.pod("held", w.on("unknown"), in(v1.PodRunning), held)
	onReady := w.pod("ready", w.on("ready"), in(v1.PodRunning))
	alive := w.pod("alive", w.on("down"), in(v1.PodRunning))
	for _, name := range []string{"free", "held", "ready"} {
		w.deletePod(name, 300)
	}
	onReady = w.get(onReady.Name)
	w.pass()
	w.pass()
	for _, name := range []string{"free", "held", "ready"} {
		if pod := w.get(name); pod == nil || ptr.Deref(pod.DeletionGracePeriodSeconds, 0) != 300 {
			t.Fatalf("%s was touched without a taint: %+v", name, pod)
		}
	}

	w.taint("down", v1.TaintEffectNoExecute)
	w.taint("unknown", v1.TaintEffectNoSchedule)
	w.taint("ready", v1.TaintEffectNoExecute)
	w.pass()
	if err := w.gone("free")(); err != nil {
		t.Error(err)
	}
	if pod := w.terminating("held"); pod.Status.Phase != v1.PodFailed || disruption(pod) != nil {
		t.Errorf("phase %s, condition %+v; want Failed without a condition", pod.Status.Phase, disruption(pod))
	}
	w.pass()
	w.untouched(onReady, alive)
	if got := w.counted(deletionsTotal, "out-of-service"); got != 2 {
		t.Errorf("%g deletions counted, want 2", got)
	}
}

func TestAcceptance05_TerminatingPodsThatWereNeverScheduledFail(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	w.pod("p", held)
	w.pod("alive")
	w.deletePod("p", 30)
	w.pass()
	pod := w.terminating("p")
	if pod.Status.Phase != v1.PodFailed || disruption(pod) != nil || pod.Status.ObservedGeneration == 0 {
		t.Errorf("phase %s, condition %+v, observed generation %d; want Failed without a condition",
			pod.Status.Phase, disruption(pod), pod.Status.ObservedGeneration)
	}
	w.release("p")
	w.passUntil("end", w.gone("p"))
	if phase := w.get("alive").Status.Phase; phase != v1.PodPending {
		t.Errorf("phase of the other pod is %s", phase)
	}
}

func TestAcceptance06_AnOrphanWhoseSpecCannotBeMergedGoes(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	w.pod("p", w.on("never-there"), func(pod *v1.Pod) {
		c := &pod.Spec.Containers[0]
		c.Env = []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
		c.Ports = []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80, Name: "again"}}
	})
	w.passUntil("deletion", w.gone("p"))
	if got := w.counted(errorsTotal, "orphaned"); got != 0 {
		t.Errorf("%g errors counted", got)
	}
}

func TestAcceptance07_AQuarantineStartsOverWithTheController(t *testing.T) {
	t.Parallel()
	w := start(t, 0)
	w.node("n", v1.ConditionTrue)
	pod := w.pod("p", w.on("n"), in(v1.PodRunning))
	w.deleteNode("n")
	w.passUntil("quarantine", func() error {
		if len(w.state().MissingNodes) == 0 {
			return errors.New("no node is missing")
		}
		return nil
	})
	w.pass()
	w.controller.Stop()
	w.clock.Step(10 * time.Second)
	w.untouched(pod)
	started := w.clock.Now()
	w.controller.Start()
	w.passed(time.Time{}) // the first is at once
	w.passUntil("deletion", w.gone("p"))
	if after := w.deletedAt("p").Sub(started); after < 40*time.Second || after > 80*time.Second {
		t.Errorf("deleted %s after the start, want 40 s to 80 s", after)
	}
}
