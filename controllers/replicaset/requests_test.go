package replicaset_test

import (
	"slices"
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// statusWrites are the writes of ReplicaSets so far, none of which is of anything else.
func (c *cluster) statusWrites() int {
	c.t.Helper()
	writes := c.Writes(replicaSetResource)
	for _, write := range writes {
		if write.Verb != "update" || write.Subresource != "status" {
			c.t.Errorf("unexpected write %+v", write)
		}
	}
	return len(writes)
}

// The least possible requests: one for each pod, one that tells of all of them,
// and for a burst of pods that become ready one for all, and one for each half
// second that it takes.
func TestBurstsAreReportedTogether(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	tell := func(what string, happen func()) {
		t.Helper()
		before, begin := c.statusWrites(), time.Now()
		happen()
		took := time.Since(begin)
		if statuses := c.statusWrites() - before; statuses > 1+int(took/(500*time.Millisecond)) {
			t.Errorf("%d writes of the status in %s for %s", statuses, took, what)
		}
	}
	tell("a creation", func() {
		c.create(newReplicaSet("web", 20))
		c.waitForStatus("web", "20 replicas", counts(20, 0, 0))
	})
	if pods := len(c.Writes(podResource)); pods != 20 {
		t.Errorf("%d writes of pods, want 20", pods)
	}
	pods := c.waitForPods("web", 20)
	tell("20 ready pods", func() {
		now := time.Now()
		for _, pod := range pods {
			c.setPodStatus(pod.Name, readySince(now))
		}
		c.waitForStatus("web", "20 available", counts(20, 20, 20))
	})
	tell("a scale-down", func() {
		c.scale("web", 0)
		c.waitForStatus("web", "no replica", all(counts(0, 0, 0), terminating(0)))
	})
}

// Nothing is written when nothing is to be said: after a restart, for an event
// without consequence, for a pod's change that does not count.
func TestNothingIsWrittenWithoutNeed(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 2))
	c.waitForStatus("web", "two replicas", counts(2, 0, 0))
	before := c.Writes(podResource)
	statuses := c.statusWrites()
	c.controller.Restart()
	c.touch("web")
	c.setPodStatus(c.waitForPods("web", 2)[0].Name, restarts(1))
	c.controller.CatchUp()
	// What comes last is done last.
	c.create(newReplicaSet("last", 1))
	c.waitForStatus("last", "one replica", counts(1, 0, 0))
	if after := c.Writes(podResource); !slices.Equal(before, after[:len(before)]) || len(after) != len(before)+1 {
		t.Errorf("writes of pods %v", after[len(before):])
	}
	if after := c.statusWrites() - statuses; after != 1 {
		t.Errorf("%d writes of statuses, want that of the last ReplicaSet only", after)
	}
}
