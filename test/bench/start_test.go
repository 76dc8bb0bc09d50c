package bench

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// startRepeats is how often a start is measured; the median counts.
const startRepeats = 3

// starts are the medians of a program.
type starts struct{ first, again time.Duration }

// measureStarts measures from the start of the process to its first
// ReplicaSet, when no lease is in the way and after a SIGTERM of the leader.
func measureStarts(b *testing.B, client kubernetes.Interface, namespace, prefix string, p program) starts {
	b.Helper()
	awaitReconciling(b, client, namespace, prefix+"-probe")
	measure := func(kind string, stop func()) time.Duration {
		var all []time.Duration
		for i := range startRepeats {
			stop()
			name := fmt.Sprintf("%s-%s-%d", prefix, kind, i)
			create(b, client, namespace, name, 0)
			seen := watchReplicaSet(b, client, namespace, name)
			began := time.Now()
			if err := p.Start(); err != nil {
				b.Fatal(err)
			}
			all = append(all, seen().Sub(began))
		}
		return median(all)
	}
	return starts{
		first: measure("first", func() { stopAndForget(b, client, p) }),
		again: measure("again", func() {
			if err := p.Stop(); err != nil {
				b.Fatal(err)
			}
		}),
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		cp, client := controlPlane(b, controlplane.Options{})
		namespace := cp.Namespace(b)
		d := startDaemon(b, cp)
		ours := measureStarts(b, client, namespace, "daemon", d)
		reload := measureReload(b, d)
		stopAndForget(b, client, d)
		p := startPeer(b, cp)
		theirs := measureStarts(b, client, namespace, "peer", p)

		results.add("process start to first reconcile", "s", ours.first.Seconds(), theirs.first.Seconds())
		results.add("restart (SIGTERM, start) to reconcile", "s", ours.again.Seconds(), theirs.again.Seconds())
		results.add("file written to controller running; peer: restart", "s", reload.enable.Seconds(), theirs.again.Seconds())
		results.add("file written to workers resized; peer: restart", "s", reload.resize.Seconds(), theirs.again.Seconds())
	}
	results.write(b)
}
