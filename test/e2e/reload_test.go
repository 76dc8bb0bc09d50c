package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// controllersReply is what /debug/controllers answers.
type controllersReply struct {
	Controllers []struct {
		Name     string    `json:"name"`
		State    string    `json:"state"`
		Since    time.Time `json:"since"`
		Reason   string    `json:"reason"`
		Restarts int       `json:"restarts"`
		Workers  struct {
			Wanted  int `json:"wanted"`
			Running int `json:"running"`
		} `json:"workers"`
	} `json:"controllers"`
}

// state waits until a controller is in one of the states.
func state(t *testing.T, d *daemon.Daemon, name string, states ...string) {
	t.Helper()
	eventually(t, soon, fmt.Sprintf("%s is %s", name, strings.Join(states, " or ")), func(ctx context.Context) error {
		var reply controllersReply
		if err := d.Get(ctx, "/debug/controllers", &reply); err != nil {
			return err
		}
		for _, c := range reply.Controllers {
			if c.Name == name {
				if slices.Contains(states, c.State) {
					return nil
				}
				return fmt.Errorf("it is %s: %s", c.State, c.Reason)
			}
		}
		return errors.New("it is not listed")
	})
}

func TestAnEditStopsAndStartsOneController(t *testing.T) {
	cp := controlplane.Shared(t)
	d := start(t, cp, daemon.Options{})
	state(t, d, "deployment-controller", "Running")
	state(t, d, "replicaset-controller", "Running")

	enabled := func(on bool) func(*schema.ControllerManagerConfiguration) {
		return func(c *schema.ControllerManagerConfiguration) {
			c.Controllers.Sections["deployment-controller"].Base().Enabled = on
		}
	}
	if err := d.Edit(enabled(false)); err != nil {
		t.Fatal(err)
	}
	state(t, d, "deployment-controller", "Disabled")
	state(t, d, "replicaset-controller", "Running")
	if err := d.Edit(enabled(true)); err != nil {
		t.Fatal(err)
	}
	state(t, d, "deployment-controller", "Running")

	var reply controllersReply
	if err := d.Get(t.Context(), "/debug/controllers", &reply); err != nil {
		t.Fatal(err)
	}
	for _, c := range reply.Controllers {
		if c.Name == "replicaset-controller" && c.Restarts != 0 {
			t.Errorf("replicaset-controller was restarted %d times", c.Restarts)
		}
	}
}

// badFiles are edits that must change nothing.
var badFiles = []string{
	"",
	"\t",
	"not: [closed",
	"apiVersion: config.wheelhouse.dev/v1alpha1\nkind: ControllerManagerConfiguration\ncontrollers: {deployment: {workers: -1}}\n",
	"apiVersion: config.wheelhouse.dev/v1alpha1\nkind: ControllerManagerConfiguration\ncontrolers: {}\n",
	"apiVersion: v1\nkind: Pod\n",
	"\x00\x01\x02",
}

// A rollout of 1,000 pods ends as it would without 200 edits, valid and
// invalid, in its midst.
func TestTwoHundredEditsDuringARolloutChangeNothing(t *testing.T) {
	const deployments, replicas, edits = 50, 20, 200
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	d := start(t, cp, daemon.Options{})
	state(t, d, "deployment-controller", "Running")
	lease := follow(t, client, "e2e")
	pods := countCreates(t, cp, "pods", namespace)
	replicaSets := countCreates(t, cp, "replicasets", namespace)

	for i := range deployments {
		object := deployment(namespace, fmt.Sprintf("web-%d", i), replicas)
		if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	valid := d.Config()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for range edits {
		if random.IntN(4) == 0 {
			if err := d.WriteText([]byte(badFiles[random.IntN(len(badFiles))])); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := d.Write(shuffled(valid, random)); err != nil {
				t.Fatal(err)
			}
		}
		<-pause.C
	}
	if err := d.Write(valid); err != nil {
		t.Fatal(err)
	}
	for i := range deployments {
		eventually(t, late, "deployment available", func(ctx context.Context) error {
			return available(ctx, client, namespace, fmt.Sprintf("web-%d", i), replicas)
		})
	}
	created(t, "pods", pods, deployments*replicas)
	created(t, "replica sets", replicaSets, deployments)
	lease(d.Config().LeaderElection.LeaseDuration.Duration)
}

// shuffled is a valid configuration that differs from c in what runs how.
func shuffled(c *schema.ControllerManagerConfiguration, random *rand.Rand) *schema.ControllerManagerConfiguration {
	c = c.DeepCopy()
	for _, name := range []string{"deployment-controller", "replicaset-controller", "serviceaccount-controller"} {
		base := c.Controllers.Sections[name].Base()
		base.Enabled = random.IntN(3) > 0
		base.Workers = 1 + random.IntN(20)
	}
	c.Logging.Level = random.IntN(3)
	c.Cluster.Client.QPS = float64(random.IntN(2) * 500)
	c.Cluster.Client.Burst = 500
	return c
}

// follow watches a Lease. The returned function ends the watch and fails the
// test if the lease changed hands or went without a renewal for longer than gap.
func follow(t *testing.T, client kubernetes.Interface, name string) func(gap time.Duration) {
	t.Helper()
	leases := client.CoordinationV1().Leases("kube-system")
	first, err := leases.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var longest time.Duration
	transitions := *first.Spec.LeaseTransitions
	last := time.Now()
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	stop := harness.Follow(t, leases, only, func(watch.EventType, *coordinationv1.Lease) {
		now := time.Now()
		longest = max(longest, now.Sub(last))
		last = now
	})
	return func(gap time.Duration) {
		t.Helper()
		stop()
		longest = max(longest, time.Since(last))
		if longest > gap {
			t.Errorf("the lease was not renewed for %s, more than %s", longest, gap)
		}
		now, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if *now.Spec.LeaseTransitions != transitions {
			t.Errorf("the lease changed hands %d times", *now.Spec.LeaseTransitions-transitions)
		}
	}
}

// created fails the test unless so many objects are created in the end, and not
// more. The API server puts a request on record after its answer.
func created(t *testing.T, what string, count func() int, want int) {
	t.Helper()
	eventually(t, soon, "all "+what+" on record", func(context.Context) error {
		if n := count(); n < want {
			return fmt.Errorf("%d are, want %d", n, want)
		}
		return nil
	})
	if n := count(); n != want {
		t.Errorf("%d %s were created, want %d", n, what, want)
	}
}

// countCreates counts what is created from now on, by the API server's own account.
func countCreates(t *testing.T, cp *controlplane.ControlPlane, resource, namespace string) func() int {
	t.Helper()
	position, err := cp.Audit().Position()
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		t.Helper()
		requests, err := cp.Audit().Requests(position, func(e auditv1.Event) bool {
			return e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Resource == resource && e.ObjectRef.Subresource == "" &&
				e.ObjectRef.Namespace == namespace && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusCreated
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(requests)
	}
}
