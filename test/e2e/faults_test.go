package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// ownControlPlane is one whose API server the test may stop.
func ownControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// outage observes a daemon until it is over, and returns when the daemon was
// first seen not to lead; zero if it led all the time. The daemon has to answer,
// and must not say that it leads when it is asked after its lease has run out.
func outage(t *testing.T, d *daemon.Daemon, lasts time.Duration, runsOut time.Time) (lost time.Time) {
	t.Helper()
	over := time.NewTimer(lasts)
	defer over.Stop()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-over.C:
			return lost
		case <-d.Exited():
			t.Fatal("the daemon has ended")
		case <-ticker.C:
		}
		asked := time.Now()
		status, err := leader(t.Context(), d)
		switch {
		case err != nil:
			t.Errorf("during the outage: %v", err)
		case status.Leader && asked.After(runsOut):
			t.Errorf("the daemon leads %s after its lease has run out", asked.Sub(runsOut))
		case !status.Leader && lost.IsZero():
			lost = time.Now()
		case status.Leader && !lost.IsZero():
			t.Error("the daemon leads again without an API server")
		}
	}
}

// deployMany creates Deployments, and returns when work on them has begun.
func deployMany(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface, namespace, prefix string, deployments int, replicas int32) {
	t.Helper()
	pods := countCreates(t, cp, "pods", namespace)
	for i := range deployments {
		deploy(t, client, namespace, fmt.Sprintf("%s-%d", prefix, i), replicas)
	}
	eventually(t, soon, "the controllers are at work", func(context.Context) error {
		if pods() == 0 {
			return errors.New("no pod was created")
		}
		return nil
	})
}

// transitions says how often the lease has changed hands.
func transitions(t *testing.T, client kubernetes.Interface, lease string) int32 {
	t.Helper()
	l, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *l.Spec.LeaseTransitions
}

// With the default timings an outage of 5 s costs nothing, one of 30 s or 120 s
// the leadership, in time. The process lives, leads again, and work ends right.
func TestTheAPIServerIsStopped(t *testing.T) {
	t.Parallel()
	const lease, deployments, replicas = "e2e-stopped", 20, 10
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	d := contend(t, cp, daemon.Options{Name: "stopped"}, lease, nil)
	leading(t, d)
	duration := d.Config().LeaderElection.LeaseDuration.Duration
	held := transitions(t, client, lease)
	pid := d.PID()

	// The time that the API server takes to start is of the outage too.
	stopFor := func(lasts time.Duration) (lost, took time.Duration) {
		// In an orderly end it closes its door, and then takes its time.
		if err := cp.APIServer.Kill(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if at := outage(t, d, lasts, began.Add(duration)); !at.IsZero() {
			lost = at.Sub(began)
		}
		if err := cp.APIServer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return lost, time.Since(began)
	}
	deployMany(t, cp, client, namespace, "first", deployments, replicas)
	lost, took := stopFor(5 * time.Second)
	if lost != 0 {
		t.Errorf("leadership was given up %s after the API server was gone", lost)
	}
	allPods(t, client, namespace, deployments, replicas)
	if now := transitions(t, client, lease); now != held && took < d.Config().LeaderElection.RenewDeadline.Duration {
		t.Errorf("the lease changed hands %d times in an outage of %s", now-held, took)
	}

	all := deployments
	for _, lasts := range []time.Duration{30 * time.Second, 120 * time.Second} {
		deployMany(t, cp, client, namespace, fmt.Sprintf("before-%s", lasts), deployments, replicas)
		lost, _ := stopFor(lasts)
		t.Logf("leadership was given up %s after the API server was gone", lost)
		if lost == 0 {
			t.Errorf("leadership was not given up in an outage of %s", lasts)
		}
		leading(t, d)
		all += deployments
		allPods(t, client, namespace, all, replicas)
	}
	deployMany(t, cp, client, namespace, "last", deployments, replicas)
	allPods(t, client, namespace, all+deployments, replicas)

	if d.PID() != pid {
		t.Errorf("the process was %d, and now is %d", pid, d.PID())
	}
	noDeletes(t, cp, 0, namespace)
	checkWrites(t, writes(t, cp, 0, lease, "stopped"), duration)
}

// An API server that is frozen for longer than the lease costs the leadership,
// in time. When it goes on one of two contenders leads, and no other writes.
func TestTheAPIServerIsFrozen(t *testing.T) {
	t.Parallel()
	const lease, deployments, replicas = "e2e-thawed", 20, 10
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	proxy, sent := recordWrites(t, cp)
	timings := func(c *schema.LeaderElection) {
		c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration = 12*time.Second, 9*time.Second, time.Second
	}
	a := contend(t, cp, daemon.Options{Name: "thawed-a", Server: proxy.URL()}, lease, timings)
	leading(t, a)
	b := contend(t, cp, daemon.Options{Name: "thawed-b", Server: proxy.URL()}, lease, timings)
	standingBy(t, b)
	duration := a.Config().LeaderElection.LeaseDuration.Duration

	deployMany(t, cp, client, namespace, "first", deployments, replicas)
	if err := cp.APIServer.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	lost := outage(t, a, 20*time.Second, began.Add(duration))
	resumed := time.Now()
	if err := cp.APIServer.Resume(); err != nil {
		t.Fatal(err)
	}
	t.Logf("leadership was given up %s after the API server froze", lost.Sub(began))
	if lost.IsZero() {
		t.Error("leadership was not given up")
	}

	eventually(t, soon, "one of them leads", func(ctx context.Context) error {
		leaders := 0
		for _, d := range []*daemon.Daemon{a, b} {
			status, err := leader(ctx, d)
			if err != nil {
				return err
			}
			if status.Leader {
				leaders++
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d lead", leaders)
		}
		return nil
	})
	allPods(t, client, namespace, deployments, replicas)
	deployMany(t, cp, client, namespace, "second", deployments, replicas)
	allPods(t, client, namespace, 2*deployments, replicas)

	// The API server's own record does not tell when a request was sent: what
	// waited during the freeze counts as received after it.
	written := map[string]int{}
	leads := map[string]bool{}
	for _, r := range sent() {
		lostAt := began.Add(duration)
		switch {
		case r.Resource.Resource == "leases" && r.At.After(resumed):
			leads[r.User] = true
		case r.Resource.Resource == "leases":
		case r.At.Before(lostAt):
			written[r.User]++
		case !leads[r.User]:
			t.Errorf("%s sent %s %s %s after the lease had run out, before it led again",
				r.User, r.Verb, r.Resource, r.At.Sub(lostAt))
		}
	}
	if written["thawed-a"] == 0 || written["thawed-b"] > 0 {
		t.Errorf("before the lease ran out there were these writes: %v", written)
	}
}

// recordWrites starts a proxy. The returned function tells which writes were
// sent through it, answered or not.
func recordWrites(t *testing.T, cp *controlplane.ControlPlane) (*apiproxy.Proxy, func() []apiproxy.Request) {
	t.Helper()
	proxy, err := apiproxy.Start(cp, apiproxy.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	var mu sync.Mutex
	var sent []apiproxy.Request
	proxy.Before(func(r apiproxy.Request) {
		switch r.Resource.Resource {
		case "events", "tokenreviews", "subjectaccessreviews":
			return
		}
		if r.Write() {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, r)
		}
	})
	return proxy, func() []apiproxy.Request {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(sent)
	}
}
