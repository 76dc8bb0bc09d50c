package daemonset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

const (
	// firstBackOff and maxBackOff of pods that fail one after the other on a
	// node. A node that has been quiet for twice the maximum starts anew.
	firstBackOff = time.Second
	maxBackOff   = 15 * time.Minute
	// forgetEvery is how often what is over is forgotten.
	forgetEvery = time.Minute
)

// failures remembers when failed pods were last deleted. Losing it costs one
// deletion per node that comes too early.
type failures struct {
	backOff *flowcontrol.Backoff
	clock   clock.WithTicker
}

func newFailures(c clock.WithTicker) *failures {
	f := &failures{backOff: flowcontrol.NewBackOff(firstBackOff, maxBackOff), clock: c}
	f.backOff.Clock = c
	return f
}

// failureKey begins anew with each generation: a changed template deserves a
// new try.
func failureKey(ds *appsv1.DaemonSet, node string) string {
	return fmt.Sprintf("%s/%d/%s", ds.UID, ds.Generation, node)
}

// heldBack returns for how long no failed pod of ds may be deleted on node, 0
// if one may be. It may be up to twice as long as is left.
func (f *failures) heldBack(ds *appsv1.DaemonSet, node string) time.Duration {
	key := failureKey(ds, node)
	if f.backOff.IsInBackOffSinceUpdate(key, f.clock.Now()) {
		return f.backOff.Get(key)
	}
	return 0
}

// deleted notes that a failed pod of ds was deleted on node.
func (f *failures) deleted(ds *appsv1.DaemonSet, node string) {
	f.backOff.Next(failureKey(ds, node), f.clock.Now())
}

// run forgets what is over until ctx ends.
func (f *failures) run(ctx context.Context) error {
	ticker := f.clock.NewTicker(forgetEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			f.backOff.GC()
		case <-ctx.Done():
			return nil
		}
	}
}
