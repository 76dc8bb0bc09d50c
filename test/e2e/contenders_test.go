package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/runtime/election"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// quick are timings for tests that wait for a lease to expire.
func quick(c *schema.LeaderElection) {
	c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration = 10*time.Second, 7*time.Second, 500*time.Millisecond
}

// contend runs a daemon that is a user of its own to the API server, so that
// the audit log tells contenders for a lease apart.
func contend(t *testing.T, cp *controlplane.ControlPlane, o daemon.Options, lease string, timings func(*schema.LeaderElection)) *daemon.Daemon {
	t.Helper()
	o.User, o.Groups = o.Name, []string{"system:masters"}
	o.Config = func(c *schema.ControllerManagerConfiguration) {
		c.Cluster.UseServiceAccountCredentials = false
		c.LeaderElection.ResourceName = lease
		if timings != nil {
			timings(&c.LeaderElection)
		}
	}
	return start(t, cp, o)
}

// leading returns when d leads and its controllers reconcile.
func leading(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	eventually(t, soon, "the daemon leads", func(ctx context.Context) error {
		status, err := leader(ctx, d)
		if err == nil && !status.Leader {
			err = fmt.Errorf("%q holds the lease", status.Holder)
		}
		return err
	})
	state(t, d, "deployment-controller", "Running")
	state(t, d, "replicaset-controller", "Running")
}

// standingBy returns when d does not lead and is ready to.
func standingBy(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	state(t, d, "deployment-controller", "Standby")
	state(t, d, "replicaset-controller", "Standby")
	eventually(t, soon, "the standby is ready", func(ctx context.Context) error {
		_, err := d.Body(ctx, "/readyz")
		return err
	})
}

// leader is d's own view of the lease.
func leader(ctx context.Context, d *daemon.Daemon) (election.Status, error) {
	var status election.Status
	err := d.Get(ctx, "/debug/leader", &status)
	return status, err
}

// position is the present end of the audit log.
func position(t *testing.T, cp *controlplane.ControlPlane) controlplane.AuditPosition {
	t.Helper()
	at, err := cp.Audit().Position()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// deploy creates a Deployment.
func deploy(t *testing.T, client kubernetes.Interface, namespace, name string, replicas int32) {
	t.Helper()
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment(namespace, name, replicas), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// hasReplicaSet returns when a Deployment has its ReplicaSet.
func hasReplicaSet(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	eventually(t, soon, name+" has its replica set", func(ctx context.Context) error {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err == nil && len(sets.Items) != 1 {
			err = fmt.Errorf("there are %d", len(sets.Items))
		}
		return err
	})
}

// allPods returns when a namespace has pods for all replicas of so many
// Deployments, and neither more nor ones that are being deleted.
func allPods(t *testing.T, client kubernetes.Interface, namespace string, deployments int, replicas int32) {
	t.Helper()
	eventually(t, late, "all pods exist", func(ctx context.Context) error {
		list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != deployments {
			return fmt.Errorf("there are %d deployments, want %d", len(list.Items), deployments)
		}
		for _, d := range list.Items {
			if d.Status.ObservedGeneration != d.Generation || d.Status.Replicas != replicas || d.Status.UpdatedReplicas != replicas {
				return fmt.Errorf("%s: status %+v", d.Name, d.Status)
			}
		}
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) != deployments*int(replicas) {
			err = fmt.Errorf("there are %d pods, want %d", len(pods.Items), deployments*int(replicas))
		}
		return err
	})
}

// noDeletes fails the test if pods were deleted: then some were too many.
func noDeletes(t *testing.T, cp *controlplane.ControlPlane, from controlplane.AuditPosition, namespace string) {
	t.Helper()
	deletes, err := cp.Audit().Requests(from, func(e auditv1.Event) bool {
		return e.Verb == "delete" && e.ObjectRef != nil && e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == namespace
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(deletes) > 0 {
		t.Errorf("%d pods were deleted, so that many were too many", len(deletes))
	}
}

// write is a request of a contender that changes the cluster, or the lease.
type write struct {
	user     string
	what     string
	received time.Time
	code     int32
	// isLease is true for a write of the lease that names holder.
	isLease bool
	holder  string
}

func (w write) String() string {
	return fmt.Sprintf("%s %s %s (%d)", w.received.Format("15:04:05.000"), w.user, w.what, w.code)
}

func (w write) succeeded() bool { return w.code >= 200 && w.code < 300 }

// writes are what contenders have written, in the order in which the API server
// received it. Events and access reviews are no writes that need the lease.
func writes(t *testing.T, cp *controlplane.ControlPlane, from controlplane.AuditPosition, lease string, users ...string) []write {
	t.Helper()
	entries, err := cp.Audit().Requests(from, func(e auditv1.Event) bool {
		if !slices.Contains(users, e.User.Username) || e.ObjectRef == nil || e.ResponseStatus == nil {
			return false
		}
		switch e.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
		default:
			return false
		}
		switch e.ObjectRef.Resource {
		case "events", "tokenreviews", "subjectaccessreviews":
			return false
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	result := make([]write, 0, len(entries))
	for _, e := range entries {
		w := write{
			user:     e.User.Username,
			what:     strings.Join([]string{e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name}, " "),
			received: e.RequestReceivedTimestamp.Time,
			code:     e.ResponseStatus.Code,
		}
		if w.isLease = e.ObjectRef.Resource == "leases"; w.isLease {
			if e.ObjectRef.Name != lease && e.Verb != "create" {
				t.Fatalf("%s writes another lease: %s", w.user, w.what)
			}
			var body coordinationv1.Lease
			if e.RequestObject == nil {
				t.Fatalf("the audit log has no body of %s", w)
			}
			if err := json.Unmarshal(e.RequestObject.Raw, &body); err != nil {
				t.Fatalf("read the lease that was written: %v", err)
			}
			if body.Spec.HolderIdentity != nil {
				w.holder = *body.Spec.HolderIdentity
			}
		}
		result = append(result, w)
	}
	slices.SortStableFunc(result, func(a, b write) int {
		return cmp.Or(a.received.Compare(b.received), strings.Compare(a.user, b.user))
	})
	return result
}

// checkWrites fails the test for each write that a contender sent while the
// lease was, as the API server saw it, not its own or had run out. It returns
// how often the lease was taken.
func checkWrites(t *testing.T, all []write, duration time.Duration) (terms int) {
	t.Helper()
	var owner string
	var until time.Time
	counted := 0
	for _, w := range all {
		switch {
		case w.isLease && !w.succeeded():
		case w.isLease && w.holder == "":
			owner = ""
		case w.isLease:
			if owner != w.user {
				terms++
			}
			owner, until = w.user, w.received.Add(duration)
		case owner != w.user:
			t.Errorf("written while %q held the lease: %s", owner, w)
		case w.received.After(until):
			t.Errorf("written %s after the lease had run out: %s", w.received.Sub(until), w)
		default:
			counted++
		}
	}
	if counted == 0 {
		t.Error("there are no writes to check")
	}
	return terms
}

// awaitWrite waits for firstWrite, which the API server puts on record after its answer.
func awaitWrite(t *testing.T, all func() []write, user string, from time.Time) (first write) {
	t.Helper()
	eventually(t, soon, "a write of "+user, func(context.Context) (err error) {
		first, err = firstWrite(all(), user, from)
		return err
	})
	return first
}

// firstWrite is the first one of a user from a moment on that is not of the lease.
func firstWrite(all []write, user string, from time.Time) (write, error) {
	for _, w := range all {
		if w.user == user && !w.isLease && w.succeeded() && !w.received.Before(from) {
			return w, nil
		}
	}
	return write{}, errors.New("there is none")
}
