package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// builder makes clients of user whose writes fence keeps back.
func builder(t *testing.T, cp *controlplane.ControlPlane, fence *client.Fence, user string, groups ...string) *client.Builder {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.WriteKubeconfig(path, user, groups...); err != nil {
		t.Fatal(err)
	}
	b, err := client.New(client.Options{Kubeconfig: path, Fence: fence, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// leasesOf is a lease client as the daemon has it.
func leasesOf(t *testing.T, cp *controlplane.ControlPlane, user string, groups ...string) coordinationv1client.LeasesGetter {
	t.Helper()
	c, err := kubernetes.NewForConfig(builder(t, cp, client.NewFence(nil), user, groups...).Unfenced("leader-election"))
	if err != nil {
		t.Fatal(err)
	}
	return c.CoordinationV1()
}

// calm are timings for tests that wait for a lease to expire, on a machine that
// may be busy.
func calm(namespace string) func(*schema.LeaderElection) {
	return func(c *schema.LeaderElection) {
		c.ResourceNamespace = namespace
		c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration = 10*time.Second, 7*time.Second, time.Second
	}
}

// soon is ample for what must come on a busy machine. How soon it does is tested in bubbles.
const soon = 2 * time.Minute

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

func (c *candidate) expectSoon(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, c.o.Identity+" did "+strings.Join(want, ", "), func() error {
		if got, _ := c.did(); strings.Join(got, ", ") != strings.Join(want, ", ") {
			return errors.New("it did " + strings.Join(got, ", "))
		}
		return nil
	})
}

func TestFailoverAndHandover(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	n := cp.Namespace(t)
	leases := leasesOf(t, cp, "admin", "system:masters")
	a, b, c := newCandidate(t, leases, "a", calm(n)), newCandidate(t, leases, "b", calm(n)), newCandidate(t, leases, "c", calm(n))
	stopA := a.run(t)
	a.expectSoon(t, "lead")
	stopB := b.run(t)
	eventually(t, "b sees the holder", func() error {
		if got := b.Status().Holder; got != "a" {
			return errors.New("it sees " + got)
		}
		return nil
	})
	stopA() // dies without a release
	b.expectSoon(t, "lead")

	stopC := c.run(t)
	eventually(t, "c sees the holder", func() error {
		if got := c.Status().Holder; got != "b" {
			return errors.New("it sees " + got)
		}
		return nil
	})
	b.written = map[apischema.GroupResource]string{{Group: "apps", Resource: "replicasets"}: "77"}
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.expectSoon(t, "lead")
	stopB()
	marks, ok := c.LastMarks()
	if !ok || len(marks) != 1 || marks[apischema.GroupResource{Group: "apps", Resource: "replicasets"}] != "77" {
		t.Errorf("handed over %v, %t", marks, ok)
	}
	if got := c.Status(); got.Transitions != 2 || got.Holder != "c" {
		t.Errorf("status %+v, want the second transition", got)
	}
	stopC()
}

func TestEventsOnTheLease(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	n := cp.Namespace(t)
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: admin.CoreV1().Events("")})
	c := newCandidate(t, leasesOf(t, cp, "admin", "system:masters"), "a", calm(n))
	c.o.Events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kube-controller-manager"})
	c.Elector, err = New(c.o)
	if err != nil {
		t.Fatal(err)
	}
	stop := c.run(t)
	c.expectSoon(t, "lead")
	stop()
	eventually(t, "both events", func() error {
		events, err := admin.CoreV1().Events(n).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := map[string]bool{}
		for _, e := range events.Items {
			o := e.InvolvedObject
			if e.Type == "Normal" && e.Reason == "LeaderElection" && e.Source.Component == "kube-controller-manager" &&
				o.Kind == "Lease" && o.APIVersion == "coordination.k8s.io/v1" && o.Name == "lease" && o.Namespace == n {
				found[e.Message] = true
			}
		}
		if !found["a became leader"] || !found["a stopped leading"] {
			return errors.New("not there")
		}
		return nil
	})
}

func TestTimingsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	n := cp.Namespace(t)
	leases := leasesOf(t, cp, "admin", "system:masters")
	c := newCandidate(t, leases, "a", calm(n))
	stop := c.run(t)
	defer stop()
	c.expectSoon(t, "lead")

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	w, err := leases.Leases(n).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var renewals atomic.Int64
	all.Go(func() {
		var last *coordinationv1.Lease
		for event := range w.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if ctx.Err() != nil {
				return
			}
			if !ok || event.Type == "DELETED" {
				t.Errorf("event %s: %v", event.Type, event.Object)
				return
			}
			if last != nil {
				gap, lasts := lease.Spec.RenewTime.Sub(last.Spec.RenewTime.Time), time.Duration(*last.Spec.LeaseDurationSeconds)*time.Second
				if gap > lasts {
					t.Errorf("a gap of %s between renewals of a lease of %s", gap, lasts)
				}
				if transitions(lease) != transitions(last) || holder(lease) != "a" ||
					!lease.Spec.AcquireTime.Equal(last.Spec.AcquireTime) {
					t.Errorf("the leader changed: %+v", lease.Spec)
				}
			}
			last = lease
			renewals.Add(1)
		}
	})
	writer, err := kubernetes.NewForConfig(builder(t, cp, c.fence, "admin", "system:masters").Root("load"))
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Int64
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := writer.CoreV1().ConfigMaps(n).Create(ctx,
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
				if err != nil && ctx.Err() == nil {
					t.Errorf("a write failed while leading: %v", err)
					return
				}
				writes.Add(1)
			}
		})
	}
	for _, next := range []timings{
		{15 * time.Second, 10 * time.Second, 2 * time.Second},
		{9 * time.Second, 7 * time.Second, 500 * time.Millisecond},
		{12 * time.Second, 9 * time.Second, time.Second},
	} {
		changed := config()
		changed.LeaseDuration.Duration, changed.RenewDeadline.Duration = next.lease, next.deadline
		changed.RetryPeriod.Duration = next.retry
		if err := c.Apply(changed); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the lease has the new duration", func() error {
			lease, err := leases.Leases(n).Get(t.Context(), "lease", metav1.GetOptions{})
			if err == nil && int64(*lease.Spec.LeaseDurationSeconds) != int64(next.lease/time.Second) {
				err = errors.New("it has another")
			}
			return err
		})
		before := renewals.Load()
		eventually(t, "it is renewed", func() error {
			if renewals.Load() < before+3 {
				return errors.New("not often enough yet")
			}
			return nil
		})
	}
	eventually(t, "there was some load", func() error {
		if writes.Load() < 100 {
			return errors.New("too few writes")
		}
		return nil
	})
	c.expect(t, "lead")
	if got := c.recorded(); len(got) != 1 {
		t.Errorf("events %q, want one", got)
	}
}

func TestServerFrozenAndStopped(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := newCandidate(t, leasesOf(t, cp, "admin", "system:masters"), "a", calm("default"))
	stop := c.run(t)
	defer stop()
	c.expectSoon(t, "lead")
	writer, err := kubernetes.NewForConfig(builder(t, cp, c.fence, "writer", "system:masters").Root("load"))
	if err != nil {
		t.Fatal(err)
	}
	write := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		_, err := writer.CoreV1().ConfigMaps("default").
			Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}

	// Frozen: a write under way is cancelled by the fence, later ones are refused.
	if err := cp.APIServer.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, client.ErrFenced) {
		t.Errorf("error %v, want ErrFenced", err)
	}
	c.expectSoon(t, "lead", "lost")
	if err := write(); !errors.Is(err, client.ErrFenced) {
		t.Errorf("error %v, want ErrFenced", err)
	}
	eventually(t, "the status says so", func() error {
		if got := c.Status(); got.Leader || got.FencedRequests < 2 {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	if err := cp.APIServer.Resume(); err != nil {
		t.Fatal(err)
	}
	c.expectSoon(t, "lead", "lost", "lead")
	eventually(t, "a write succeeds again", write)

	// Stopped.
	if err := cp.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	c.expectSoon(t, "lead", "lost", "lead", "lost")
	if err := cp.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.expectSoon(t, "lead", "lost", "lead", "lost", "lead")
	if got := c.Status().Transitions; got != 0 {
		t.Errorf("transitions %d, want 0: nobody else held the lease", got)
	}
	eventually(t, "a write succeeds again", write)
}

// The peer keeps the same Lease: each stands by behind the other.
func TestBesideKubeControllerManager(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	const user = "system:kube-controller-manager"
	const name, namespace = "kube-controller-manager", "kube-system"
	peerLease := func(c *schema.LeaderElection) { c.ResourceName, c.ResourceNamespace = name, namespace }
	leases := leasesOf(t, cp, user)
	a, b := newCandidate(t, leases, "host_a", peerLease), newCandidate(t, leases, "host_b", peerLease)
	stopA := a.run(t)
	a.expectSoon(t, "lead")
	peer, err := cp.StartPeer(t.Context(), controlplane.PeerOptions{Controllers: []string{"ttl-after-finished-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	a.written = map[apischema.GroupResource]string{{Resource: "pods"}: "1"}
	if err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopA()
	current := func() *coordinationv1.Lease {
		t.Helper()
		lease, err := leases.Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	eventually(t, "the peer holds the lease", func() error {
		if got := holder(current()); got == "" || got == "host_a" {
			return errors.New("it is held by " + got)
		}
		return nil
	})
	held := current()
	if transitions(held) != 1 || held.Annotations[writtenAnnotation] == "" {
		t.Errorf("the peer holds %+v, %v; this test wants it to keep the annotation", held.Spec, held.Annotations)
	}

	stopB := b.run(t)
	defer stopB()
	eventually(t, "b sees the peer", func() error {
		if b.Status().Holder != holder(held) {
			return errors.New("it does not")
		}
		return nil
	})
	from, err := cp.Audit().Position()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.expect(t)
	if err := peer.Kill(); err != nil {
		t.Fatal(err)
	}
	b.expectSoon(t, "lead")
	if marks, ok := b.LastMarks(); ok {
		t.Errorf("marks %v are from before the peer led", marks)
	}
	if got := b.Status(); got.Transitions != 2 || current().Annotations[writtenAnnotation] != "" {
		t.Errorf("status %+v, annotations %v", got, current().Annotations)
	}
	requests, err := cp.Audit().Requests(from, func(e auditv1.Event) bool {
		return e.Verb == "get" && e.User.Username == user &&
			strings.HasSuffix(e.UserAgent, "/leader-election") && !controlplane.FromPeer(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	// One of them is this test's own. Without a watch there were one every 2 s.
	took := time.Since(began)
	if most := 4 + int(took/(8*time.Second)); len(requests) > most {
		t.Errorf("a standby read the lease %d times in %s, want it to watch", len(requests), took)
	}
}
