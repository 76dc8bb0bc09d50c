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
	c.create(newReplicaSet("web", 20))
	c.waitForStatus("web", "20 replicas", counts(20, 0, 0))
	if pods, statuses := len(c.Writes(podResource)), c.statusWrites(); pods != 20 || statuses != 1 {
		t.Errorf("%d writes of pods and %d of the status, want 20 and 1", pods, statuses)
	}

	pods := c.waitForPods("web", 20)
	begin := time.Now()
	for _, pod := range pods {
		c.setPodStatus(pod.Name, readySince(begin))
	}
	c.waitForStatus("web", "20 available", counts(20, 20, 20))
	if most := 2 + int(time.Since(begin)/(500*time.Millisecond)); c.statusWrites() > most {
		t.Errorf("%d writes of the status in %s, want %d at most", c.statusWrites(), time.Since(begin), most)
	}

	writes := c.statusWrites()
	c.scale("web", 0)
	c.waitForStatus("web", "no replica", all(counts(0, 0, 0), terminating(0)))
	if after := c.statusWrites() - writes; after != 1 {
		t.Errorf("%d writes of the status for a scale-down, want 1", after)
	}
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
	// What comes last is seen last.
	c.create(newReplicaSet("last", 1))
	c.waitForStatus("last", "one replica", counts(1, 0, 0))
	if after := c.Writes(podResource); !slices.Equal(before, after[:len(before)]) || len(after) != len(before)+1 {
		t.Errorf("writes of pods %v", after[len(before):])
	}
	if after := c.statusWrites() - statuses; after != 1 {
		t.Errorf("%d writes of statuses, want that of the last ReplicaSet only", after)
	}
}
