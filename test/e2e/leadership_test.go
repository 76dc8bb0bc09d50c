package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// A warm standby reconciles 2 s after the lease of a killed leader has run out
// at the latest, and within 1 s of the release by one that ends in order. How
// long it took is logged, since it says most of the machine; that nothing was
// listed for it is checked.
func TestAWarmStandbyTakesOver(t *testing.T) {
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	from := position(t, cp)
	const lease = "e2e-standby"
	a := contend(t, cp, daemon.Options{Name: "standby-a"}, lease, quick)
	leading(t, a)
	b := contend(t, cp, daemon.Options{Name: "standby-b"}, lease, quick)
	standingBy(t, b)
	duration := b.Config().LeaderElection.LeaseDuration.Duration
	deploy(t, client, namespace, "before", 2)
	allPods(t, client, namespace, 1, 2)
	warm, err := informersOf(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}

	killed := time.Now()
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	deploy(t, client, namespace, "after-kill", 2)
	hasReplicaSet(t, client, namespace, "after-kill")
	all := func() []write { return writes(t, cp, from, lease, "standby-a", "standby-b") }
	first := awaitWrite(t, all, "standby-b", killed)
	t.Logf("after kill -9 the standby reconciled within %s", first.received.Sub(killed))
	now, err := informersOf(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"deployments.v1.apps metadata=false", "replicasets.v1.apps metadata=false"} {
		if i, there := warm[resource]; !there || !i.Synced || now[resource].Lists != i.Lists {
			t.Errorf("%s: the standby had %+v, and after it took over %+v", resource, i, now[resource])
		}
	}

	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	standingBy(t, a)
	leading(t, b)
	status, err := leader(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	var stopping sync.WaitGroup
	stopping.Go(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	defer stopping.Wait()
	asked := time.Now()
	eventually(t, soon, "the lease is released", func(ctx context.Context) error {
		l, err := client.CoordinationV1().Leases("kube-system").Get(ctx, lease, metav1.GetOptions{})
		if err == nil && *l.Spec.HolderIdentity == status.Identity {
			err = fmt.Errorf("%s holds it still", status.Identity)
		}
		return err
	})
	deploy(t, client, namespace, "after-term", 2)
	hasReplicaSet(t, client, namespace, "after-term")
	stopping.Wait()
	var released time.Time
	eventually(t, soon, "the release is on record", func(context.Context) error {
		for _, w := range all() {
			if w.user == "standby-b" && w.isLease && w.holder == "" {
				released = w.received
				return nil
			}
		}
		return errors.New("the lease was not released")
	})
	first = awaitWrite(t, all, "standby-a", released)
	t.Logf("after SIGTERM the lease was released within %s, and the standby reconciled %s later",
		released.Sub(asked), first.received.Sub(released))

	allPods(t, client, namespace, 3, 2)
	noDeletes(t, cp, from, namespace)
	if terms := checkWrites(t, all(), duration); terms != 3 {
		t.Errorf("there were %d terms, want 3", terms)
	}
}

// A leader that was frozen for longer than its lease writes nothing when it
// goes on, until it leads again.
func TestAFrozenLeaderWritesNothingWhenItGoesOn(t *testing.T) {
	const lease, replicas = "e2e-frozen", 3
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	from := position(t, cp)
	pods, replicaSets := countCreates(t, cp, "pods", namespace), countCreates(t, cp, "replicasets", namespace)
	a := contend(t, cp, daemon.Options{Name: "frozen-a"}, lease, quick)
	leading(t, a)
	b := contend(t, cp, daemon.Options{Name: "frozen-b"}, lease, quick)
	standingBy(t, b)

	stop := keepDeploying(t, client, namespace, replicas)
	eventually(t, soon, "the leader is at work", func(context.Context) error {
		if pods() < 5 {
			return fmt.Errorf("%d pods were created", pods())
		}
		return nil
	})
	if err := a.Pause(); err != nil {
		t.Fatal(err)
	}
	leading(t, b)
	took := time.Now()
	eventually(t, soon, "the successor is at work", func(context.Context) error {
		_, err := firstWrite(writes(t, cp, from, lease, "frozen-b"), "frozen-b", took)
		return err
	})
	if err := a.Resume(); err != nil {
		t.Fatal(err)
	}
	standingBy(t, a)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	leading(t, a)
	deployments := stop()
	allPods(t, client, namespace, deployments, replicas)

	created(t, "pods", pods, deployments*replicas)
	created(t, "replica sets", replicaSets, deployments)
	all := writes(t, cp, from, lease, "frozen-a", "frozen-b")
	if terms := checkWrites(t, all, a.Config().LeaderElection.LeaseDuration.Duration); terms != 3 {
		t.Errorf("there were %d terms, want 3", terms)
	}
}

// keepDeploying creates a Deployment every 100 ms until the returned function
// is called, which says how many there are.
func keepDeploying(t *testing.T, client kubernetes.Interface, namespace string, replicas int32) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	count := 0
	running.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			// Not ctx, which would leave open whether the last one exists.
			object := deployment(namespace, fmt.Sprintf("web-%d", count), replicas)
			if _, err := client.AppsV1().Deployments(namespace).Create(context.WithoutCancel(ctx), object, metav1.CreateOptions{}); err != nil {
				t.Error(err)
				return
			}
			count++
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return func() int {
		cancel()
		running.Wait()
		return count
	}
}

// While rollouts are under way the lease goes to kube-controller-manager and
// back, by its default name. StatefulSets and DaemonSets of either stay as they
// are: neither sees another template in the other's revisions.
func TestHandOverToKubeControllerManagerAndBack(t *testing.T) {
	const deployments, replicas = 8, 10
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	own := func() *daemon.Daemon {
		return start(t, cp, daemon.Options{Config: func(c *schema.ControllerManagerConfiguration) {
			c.LeaderElection.ResourceName = schema.NewScheme().Default().LeaderElection.ResourceName
			quick(&c.LeaderElection)
		}})
	}
	d := own()
	leading(t, d)
	for i := range deployments {
		object := deployment(namespace, fmt.Sprintf("web-%d", i), replicas)
		object.Spec.MinReadySeconds = 5 // so that the rollouts last until they have been handed over
		if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	createSets(t, client, namespace, "own")
	allAvailable(t, client, namespace, deployments, replicas)
	setsReady(t, client, namespace, "own")
	peer, err := cp.StartPeer(t.Context(), controlplane.PeerOptions{
		Controllers: []string{"deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller"},
		Args: []string{
			"--leader-elect=true", "--leader-elect-lease-duration=10s",
			"--leader-elect-renew-deadline=7s", "--leader-elect-retry-period=500ms",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := peer.Stop(); err != nil {
			t.Error(err)
		}
	})

	// To the peer.
	pods, revisions := countCreates(t, cp, "pods", namespace), countCreates(t, cp, "controllerrevisions", namespace)
	fromPeer := countFromPeer(t, cp, namespace)
	rollOut(t, client, namespace, deployments, "2")
	underWay(t, pods, deployments*replicas)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	touchSets(t, client, namespace, "own")
	allAvailable(t, client, namespace, deployments, replicas)
	setsReady(t, client, namespace, "own")
	created(t, "pods in the rollout that kube-controller-manager took over", pods, deployments*replicas)
	created(t, "revisions of sets that kube-controller-manager took over", revisions, 0)
	if n := fromPeer(); n == 0 || n == deployments*replicas {
		t.Errorf("kube-controller-manager created %d pods of the rollout that it took over", n)
	}

	// And back.
	createSets(t, client, namespace, "peers")
	d = own()
	standingBy(t, d)
	setsReady(t, client, namespace, "peers")
	pods, fromPeer = countCreates(t, cp, "pods", namespace), countFromPeer(t, cp, namespace)
	revisions = countCreates(t, cp, "controllerrevisions", namespace)
	rollOut(t, client, namespace, deployments, "3")
	underWay(t, pods, deployments*replicas)
	if err := peer.Stop(); err != nil {
		t.Fatal(err)
	}
	leading(t, d)
	touchSets(t, client, namespace, "own", "peers")
	allAvailable(t, client, namespace, deployments, replicas)
	setsReady(t, client, namespace, "own", "peers")
	created(t, "pods in the rollout that was taken over from kube-controller-manager", pods, deployments*replicas)
	created(t, "revisions of sets that were taken over from kube-controller-manager", revisions, 0)
	if n := fromPeer(); n == 0 || n == deployments*replicas {
		t.Errorf("kube-controller-manager created %d pods of the rollout that was taken over from it", n)
	}
}

// setReplicas is the size of the StatefulSets. There is a pod of each DaemonSet on each node.
const setReplicas = 2

// createSets creates a StatefulSet and a DaemonSet of a name.
func createSets(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	// The names of their pods' labels differ, lest one adopts what is the other's.
	template := func(kind string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{kind: name}
		return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
		}
	}
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](setReplicas)}}
	sts.Spec.Selector, sts.Spec.Template = template("set")
	if _, err := client.AppsV1().StatefulSets(namespace).Create(t.Context(), sts, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ds.Spec.Selector, ds.Spec.Template = template("daemon")
	if _, err := client.AppsV1().DaemonSets(namespace).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// touchSets changes sets in what is no part of their templates, so that their
// controllers have to look at them.
func touchSets(t *testing.T, client kubernetes.Interface, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			sts, err := client.AppsV1().StatefulSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			sts.Spec.MinReadySeconds++
			_, err = client.AppsV1().StatefulSets(namespace).Update(t.Context(), sts, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			ds, err := client.AppsV1().DaemonSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			ds.Spec.MinReadySeconds++
			_, err = client.AppsV1().DaemonSets(namespace).Update(t.Context(), ds, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// setsReady returns when sets have all their pods, by the present generation.
func setsReady(t *testing.T, client kubernetes.Interface, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, late, "the sets "+name+" are ready", func(ctx context.Context) error {
			sts, err := client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := sts.Status; s.ObservedGeneration != sts.Generation || s.AvailableReplicas != setReplicas || s.UpdatedReplicas != setReplicas {
				return fmt.Errorf("StatefulSet of generation %d: %+v", sts.Generation, s)
			}
			ds, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := ds.Status; s.ObservedGeneration != ds.Generation || s.DesiredNumberScheduled == 0 ||
				s.NumberAvailable != s.DesiredNumberScheduled || s.UpdatedNumberScheduled != s.DesiredNumberScheduled {
				return fmt.Errorf("DaemonSet of generation %d: %+v", ds.Generation, s)
			}
			return nil
		})
	}
}

// countFromPeer counts the pods that kube-controller-manager creates from now on.
func countFromPeer(t *testing.T, cp *controlplane.ControlPlane, namespace string) func() int {
	t.Helper()
	from := position(t, cp)
	return func() int {
		t.Helper()
		requests, err := cp.Audit().Requests(from, func(e auditv1.Event) bool {
			return controlplane.FromPeer(e) && e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Resource == "pods" &&
				e.ObjectRef.Subresource == "" && e.ObjectRef.Namespace == namespace
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(requests)
	}
}

// rollOut gives all Deployments another image.
func rollOut(t *testing.T, client kubernetes.Interface, namespace string, deployments int, tag string) {
	t.Helper()
	for i := range deployments {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			d, err := client.AppsV1().Deployments(namespace).Get(t.Context(), fmt.Sprintf("web-%d", i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			d.Spec.Template.Spec.Containers[0].Image = "example.com/app:" + tag
			_, err = client.AppsV1().Deployments(namespace).Update(t.Context(), d, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// underWay returns when a rollout has created some pods, and fails when it has
// created all already.
func underWay(t *testing.T, pods func() int, all int) {
	t.Helper()
	eventually(t, soon, "the rollout is under way", func(context.Context) error {
		if n := pods(); n < all/10 {
			return fmt.Errorf("%d pods were created", n)
		}
		return nil
	})
	if pods() == all {
		t.Fatal("the rollout is complete before the hand-over")
	}
}

// allAvailable returns when all Deployments are rolled out.
func allAvailable(t *testing.T, client kubernetes.Interface, namespace string, deployments int, replicas int32) {
	t.Helper()
	for i := range deployments {
		name := fmt.Sprintf("web-%d", i)
		eventually(t, late, name+" is available", func(ctx context.Context) error {
			d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if d.Status.ObservedGeneration != d.Generation || !complete(d) {
				return fmt.Errorf("status %+v", d.Status)
			}
			return available(ctx, client, namespace, name, replicas)
		})
	}
}

// complete tells whether the Progressing condition says that the newest
// ReplicaSet has everything.
func complete(d *appsv1.Deployment) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return c.Status == corev1.ConditionTrue && c.Reason == "NewReplicaSetAvailable"
		}
	}
	return false
}
