package replicaset_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	"github.com/wheelhouse-project/wheelhouse/test/podcensus"
)

// minutes is ample for hundreds of pods on a busy machine.
const minutes = 3 * time.Minute

func created(r apiproxy.Request) bool {
	return r.Verb == "create" && r.Resource == podResource && r.Subresource == ""
}

func TestAcceptance16_LargeReplicaSetsAreCreatedInParts(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	pods := podcensus.Take(t, c.client, c.ns)
	c.create(newReplicaSet("web", 600))
	harness.Eventually(t, minutes, "600 pods", func(context.Context) error { return pods.Has("web", 600) })
	c.waitForStatus("web", "600 replicas", counts(600, 0, 0))
	if got := pods.Of("web"); got.Most != 600 || got.Created != 600 {
		t.Errorf("pods %+v", got)
	}
	c.scale("web", 0)
	harness.Eventually(t, minutes, "no pods", func(context.Context) error { return pods.Has("web", 0) })
	c.waitForStatus("web", "no replicas", counts(0, 0, 0))
}

// The controller is restarted while it creates, and while it deletes, as soon
// as a few of its requests have been answered.
func TestAcceptance19_RestartWhileScalingKeepsTheBounds(t *testing.T) {
	t.Parallel()
	for _, after := range []int{1, 8, 20} {
		t.Run(fmt.Sprintf("after %d requests", after), func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			pods := podcensus.Take(t, c.client, c.ns)
			c.create(newReplicaSet("web", 0))
			c.waitForStatus("web", "no replica", counts(0, 0, 0))
			for _, step := range []struct {
				verb     string
				replicas int
			}{{"create", 50}, {"delete", 10}} {
				pods.Reset()
				done := c.restartAfter(step.verb, after)
				c.scale("web", int32(step.replicas))
				<-done
				harness.Eventually(t, soon, fmt.Sprint(step.replicas, " pods"), func(context.Context) error { return pods.Has("web", step.replicas) })
				c.waitForStatus("web", "the replicas", counts(int32(step.replicas), 0, 0))
				harness.Throughout(t, aWhile/2, "the number of pods", func(context.Context) error { return pods.Has("web", step.replicas) })
			}
			if got := pods.Of("web"); got.Fewest < 10 || got.Created != 50 {
				t.Errorf("%d pods at the fewest, %d created; want 10 and 50", got.Fewest, got.Created)
			}
		})
	}
}

// restartAfter restarts the controller once when that many of its requests for
// pods have been answered. The channel is closed when it reconciles again.
func (c *cluster) restartAfter(verb string, requests int) <-chan struct{} {
	c.t.Helper()
	reached := make(chan struct{})
	count := make(chan int, 1)
	count <- 0
	stop := c.Proxy.After(func(r apiproxy.Request) {
		if r.Verb != verb || r.Resource != podResource {
			return
		}
		n := <-count + 1
		count <- n
		if n == requests {
			close(reached)
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		<-reached
		c.controller.Restart()
	}()
	return done
}

func TestAcceptance20_WorkersAreResizedWhileManyConverge(t *testing.T) {
	t.Parallel()
	const sets, replicas = 200, 3
	c := start(t, harness.Options{})
	c.controller.Resize(1)
	pods := podcensus.Take(t, c.client, c.ns)
	for i := range sets {
		c.create(newReplicaSet(fmt.Sprint("web-", i), replicas))
		switch i {
		case sets / 3:
			c.controller.Resize(8)
		case sets * 2 / 3:
			c.controller.Resize(2)
		}
	}
	for i := range sets {
		app := fmt.Sprint("web-", i)
		harness.Eventually(t, minutes, "pods of "+app, func(context.Context) error { return pods.Has(app, replicas) })
		c.waitForStatus(app, "all replicas", counts(replicas, 0, 0))
		if ever := pods.Of(app).Created; ever != replicas {
			t.Errorf("%d pods of %s were created", ever, app)
		}
	}
}

func TestAcceptance21_TerminatingReplicasFollowTheGate(t *testing.T) {
	t.Parallel()
	gate := func(on bool) func(*schema.ControllerManagerConfiguration) {
		return func(config *schema.ControllerManagerConfiguration) {
			config.FeatureGates = map[string]bool{"DeploymentReplicaSetTerminatingReplicas": on}
		}
	}
	c := start(t, harness.Options{Configure: gate(true)})
	c.create(newReplicaSet("web", 1))
	c.waitForStatus("web", "a count of terminating pods", all(counts(1, 0, 0), terminating(0)))
	c.controller.Stop()

	off := start(t, harness.Options{Configure: gate(false), Scope: apiproxy.Scope{Namespace: c.ns}})
	off.waitForStatus("web", "no count of terminating pods", func(s appsv1.ReplicaSetStatus) string {
		if s.TerminatingReplicas != nil {
			return "want no count"
		}
		return counts(1, 0, 0)(s)
	})
	off.controller.Stop()

	on := start(t, harness.Options{Configure: gate(true), Scope: apiproxy.Scope{Namespace: c.ns}})
	on.waitForStatus("web", "a count of terminating pods", all(counts(1, 0, 0), terminating(0)))
}
