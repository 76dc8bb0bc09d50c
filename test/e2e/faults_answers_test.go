package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// behind starts a daemon behind a proxy of its own, by which its API server misbehaves.
func behind(t *testing.T, cp *controlplane.ControlPlane, name string, changes ...func(*schema.ControllerManagerConfiguration)) (*daemon.Daemon, *apiproxy.Proxy) {
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
	d := start(t, cp, daemon.Options{Name: name, Server: proxy.URL(), Config: func(c *schema.ControllerManagerConfiguration) {
		c.LeaderElection.ResourceName = "e2e-" + name
		for _, change := range changes {
			change(c)
		}
	}})
	return d, proxy
}

// ofWork tells whether a request is one of the controllers for what a rollout needs.
func ofWork(r apiproxy.Request) bool {
	switch r.Resource.Resource {
	case "deployments", "replicasets", "pods":
		return true
	}
	return false
}

// unharmed fails the test if a controller was restarted or does not run.
func unharmed(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	var reply controllersReply
	if err := d.Get(t.Context(), "/debug/controllers", &reply); err != nil {
		t.Fatal(err)
	}
	for _, c := range reply.Controllers {
		if c.Restarts != 0 || c.State == "Failed" || c.State == "Stuck" {
			t.Errorf("%s is %s after %d restarts: %s", c.Name, c.State, c.Restarts, c.Reason)
		}
	}
}

// Errors of the API server delay work. They lose none, do none twice, and harm
// neither leadership nor a controller.
func TestErrorAnswersDelayWorkOnly(t *testing.T) {
	const deployments, replicas, wrong = 10, 5, 60
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	d, proxy := behind(t, cp, "answers")
	leading(t, d)
	term := transitions(t, client, "e2e-answers")
	for _, fault := range []struct {
		name       string
		status     int
		retryAfter time.Duration
		// share of the writes that get this answer.
		share float64
	}{
		{"500 for all", http.StatusInternalServerError, 0, 1},
		{"500 for every second", http.StatusInternalServerError, 0, 0.5},
		{"503 for every second", http.StatusServiceUnavailable, 0, 0.5},
		{"504 for every second", http.StatusGatewayTimeout, 0, 0.5},
		{"429 with Retry-After", http.StatusTooManyRequests, time.Second, 0.5},
		{"409 for every second", http.StatusConflict, 0, 0.5},
	} {
		t.Run(fault.name, func(t *testing.T) {
			namespace := cp.Namespace(t)
			from := position(t, cp)
			var answered atomic.Int64
			reached := make(chan struct{})
			stop := proxy.Answer(func(r apiproxy.Request) bool {
				if !r.Write() || !ofWork(r) || r.Namespace != namespace || rand.Float64() >= fault.share {
					return false
				}
				if answered.Add(1) == wrong/2 {
					close(reached)
				}
				return true
			}, fault.status, fault.retryAfter)
			defer stop()
			for i := range deployments {
				deploy(t, client, namespace, fmt.Sprintf("web-%d", i), replicas)
			}
			select {
			case <-reached:
			case <-time.After(soon):
				t.Errorf("only %d requests were answered with %d", answered.Load(), fault.status)
			}
			stop()
			allPods(t, client, namespace, deployments, replicas)
			noDeletes(t, cp, from, namespace)
		})
	}
	unharmed(t, d)
	if now := transitions(t, client, "e2e-answers"); now != term {
		t.Errorf("the lease changed hands %d times", now-term)
	}
}

// Connections that break when the API server has carried a write out, but has
// not said so, make nothing twice for good.
func TestLostAnswersMakeNothingTwice(t *testing.T) {
	const deployments, replicas, cuts = 10, 10, 10
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	d, proxy := behind(t, cp, "lost")
	leading(t, d)
	var seen, cut atomic.Int64
	stop := proxy.After(func(r apiproxy.Request) {
		if r.Write() && ofWork(r) && r.Namespace == namespace && seen.Add(1)%10 == 0 && cut.Load() < cuts {
			cut.Add(1)
			proxy.Cut()
			proxy.Mend()
		}
	})
	defer stop()
	for i := range deployments {
		deploy(t, client, namespace, fmt.Sprintf("web-%d", i), replicas)
	}
	allPods(t, client, namespace, deployments, replicas)
	if cut.Load() == 0 {
		t.Error("no connection was cut")
	}
	unharmed(t, d)
}

// An API server that takes long to answer everything slows the work down; the
// leader stays, and nothing is done twice.
func TestSlowAnswersCostTimeOnly(t *testing.T) {
	const deployments, replicas, delay = 5, 5, 400 * time.Millisecond
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	from := position(t, cp)
	d, proxy := behind(t, cp, "slow")
	stop := proxy.Before(func(apiproxy.Request) { time.Sleep(delay) }) // that is the fault
	defer stop()
	leading(t, d)
	term := transitions(t, client, "e2e-slow")
	for i := range deployments {
		deploy(t, client, namespace, fmt.Sprintf("web-%d", i), replicas)
	}
	allPods(t, client, namespace, deployments, replicas)
	noDeletes(t, cp, from, namespace)
	unharmed(t, d)
	if now := transitions(t, client, "e2e-slow"); now != term {
		t.Errorf("the lease changed hands %d times", now-term)
	}
}

// A successor must not wait because the last events cannot be sent.
func TestTheLeaseIsReleasedThoughEventsHang(t *testing.T) {
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	d, proxy := behind(t, cp, "events")
	leading(t, d)
	var hanging atomic.Int64
	freed := make(chan struct{})
	defer close(freed)
	proxy.Before(func(r apiproxy.Request) {
		if r.Resource.Resource == "events" {
			hanging.Add(1)
			<-freed
		}
	})
	deploy(t, client, namespace, "web", 3)
	eventually(t, soon, "events hang", func(context.Context) error {
		if hanging.Load() == 0 {
			return errors.New("none was sent")
		}
		return nil
	})
	began := time.Now()
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("it took %s to end", time.Since(began))
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "e2e-events", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the lease is still held by %q", *holder)
	}
}
