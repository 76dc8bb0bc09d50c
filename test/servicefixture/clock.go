package servicefixture

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// beatRest is between two beats, beatWork how often a slice of a hundred
	// endpoints is encoded in one, which is some two milliseconds of work, and
	// beatMost what a beat counts at most. Where nothing else wants the machine it
	// takes about so long.
	beatRest = 15 * time.Millisecond
	beatWork = 10
	beatMost = 25 * time.Millisecond
)

// workClock goes as fast as the machine works: a beat is a short rest, some
// computing and one small write, and never counts for more than beatMost, however
// long it takes. What may take two seconds of it may take as long as eighty such
// beats in a row. On a busy machine they take longer, and so may a controller, and
// a test that bounds its time by this clock holds there too.
type workClock struct {
	mu  sync.Mutex
	now time.Duration
}

// startClock starts one that runs until the test ends.
func (w *World) startClock() *workClock {
	w.T.Helper()
	c := &workClock{}
	maps := w.Admin.CoreV1().ConfigMaps(w.Namespace)
	beat, err := maps.Create(w.T.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "beat-"}}, metav1.CreateOptions{})
	w.must(err)
	slice := &discovery.EndpointSlice{Endpoints: make([]discovery.Endpoint, 100)}
	for i := range slice.Endpoints {
		slice.Endpoints[i] = discovery.Endpoint{
			Addresses: podIP(i), TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: w.Namespace, Name: podName(i, i)},
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for count := 0; ; count++ {
			began := time.Now()
			select {
			case <-ctx.Done():
				return
			case <-time.After(beatRest):
			}
			for range beatWork {
				if _, err := json.Marshal(slice); err != nil {
					w.T.Errorf("the clock stands: %v", err)
					return
				}
			}
			beat.Data = map[string]string{"count": fmt.Sprint(count)}
			if beat, err = maps.Update(ctx, beat, metav1.UpdateOptions{}); err != nil {
				if ctx.Err() == nil {
					w.T.Errorf("the clock stands: %v", err)
				}
				return
			}
			c.add(min(time.Since(began), beatMost))
		}
	}()
	w.T.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

func (c *workClock) add(beat time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += beat
}

// Now is how much time has passed since the clock was started.
func (c *workClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}
