package replicationcontroller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	"github.com/wheelhouse-project/wheelhouse/test/podcensus"
)

const ofRC = "v1 ReplicationController "

func TestAcceptance01_PodsAreCreatedFromTheTemplate(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create("web", 2)
	pods := c.waitForPods("web", 2)
	if rc := c.waitForStatus("web", 2, 0, 0, ""); rc.Status.FullyLabeledReplicas != 2 || rc.Status.ObservedGeneration != 1 {
		t.Errorf("status %+v", rc.Status)
	}
	for _, pod := range pods {
		ref := metav1.GetControllerOf(&pod)
		if ref == nil || ref.APIVersion != "v1" || ref.Kind != "ReplicationController" || ref.Name != "web" ||
			!ptr.Deref(ref.BlockOwnerDeletion, false) || pod.GenerateName != "web-" {
			t.Errorf("pod %s, generated from %s, owned by %+v", pod.Name, pod.GenerateName, ref)
		}
	}
	harness.Eventually(t, soon, "an event for each pod", func(ctx context.Context) error {
		list, err := c.client.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=web,reason=SuccessfulCreate"})
		if err != nil || len(list.Items) != 2 {
			return errors.Join(err, fmt.Errorf("%d events", len(list.Items)))
		}
		for _, event := range list.Items {
			if event.Source.Component != "replication-controller" || !strings.HasPrefix(event.Message, "Created pod: web-") {
				return fmt.Errorf("event of %s: %s", event.Source.Component, event.Message)
			}
		}
		return nil
	})
}

// The metric of stale caches is that of replicaset-controller alone, although a
// replication controller is put off in the same way.
func TestStaleCachesAreNotCounted(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create("web", 1)
	c.waitForStatus("web", 1, 0, 0, "")
	release := c.Proxy.HoldWatches(podResource)
	defer release()
	c.scale("web", 2)
	harness.Eventually(t, soon, "a second pod", func(ctx context.Context) error {
		pods, err := c.activePods(ctx, "web")
		if err == nil && len(pods) != 2 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
	// The cache lacks it when the next change comes.
	c.scale("web", 3)
	harness.Throughout(t, 2*time.Second, "a wait for the cache", func(ctx context.Context) error {
		pods, err := c.activePods(ctx, "web")
		if err == nil && len(pods) != 2 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
	release()
	c.waitForPods("web", 3)
	families, err := c.controller.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if strings.HasSuffix(family.GetName(), "stale_sync_skips_total") {
			t.Errorf("metric %s", family.GetName())
		}
	}
}

func TestAcceptance02_ReplicasAreScaledUpAndDown(t *testing.T) {
	t.Parallel()
	c := start(t)
	pods := podcensus.Take(t, c.client, c.ns)
	c.create("web", 2)
	for _, replicas := range []int32{5, 1} {
		c.scale("web", replicas)
		c.waitForPods("web", int(replicas))
		c.waitForStatus("web", replicas, 0, 0, "")
	}
	harness.Eventually(t, soon, "five pods in all", func(context.Context) error {
		if got := pods.Of("web"); got.Active != 1 || got.Most != 5 || got.Created != 5 {
			return fmt.Errorf("pods %+v", got)
		}
		return nil
	})
}

func TestAcceptance03_TheNewestPodIsDeletedFirst(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create("web", 2)
	old := owners(c.waitForPods("web", 2))
	c.waitForStatus("web", 2, 0, 0, "")
	// Pods of like age, on a scale of powers of two, count as equal.
	harness.Throughout(t, 10*time.Second, "two pods", func(ctx context.Context) error {
		pods, err := c.activePods(ctx, "web")
		if err == nil && len(pods) != 2 {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
	c.scale("web", 3)
	c.waitForStatus("web", 3, 0, 0, "")
	c.scale("web", 2)
	c.waitForStatus("web", 2, 0, 0, "")
	if left := owners(c.waitForPods("web", 2)); !maps.Equal(left, old) {
		t.Errorf("left %v, want %v", left, old)
	}
}

func TestAcceptance04_OrphansAreAdoptedAndStraysReleased(t *testing.T) {
	t.Parallel()
	c := start(t)
	orphan := template("web")
	_, err := c.client.CoreV1().Pods(c.ns).Create(t.Context(),
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: orphan.Labels}, Spec: orphan.Spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.controller.CatchUp() // there is no order between two watches
	c.create("web", 1)
	c.waitForStatus("web", 1, 0, 0, "")
	adopted := c.waitForPods("web", 1)
	if owner := owners(adopted)[adopted[0].UID]; adopted[0].Name != "orphan" || owner != ofRC+"web" {
		t.Errorf("pod %s of %q", adopted[0].Name, owner)
	}

	c.relabel("orphan", "debug")
	if c.waitForPods("web", 1)[0].Name == "orphan" {
		t.Error("the stray was not replaced")
	}
	owned := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			pod, err := c.client.CoreV1().Pods(c.ns).Get(ctx, "orphan", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := owners([]v1.Pod{*pod})[pod.UID]; got != want {
				return fmt.Errorf("it is owned by %q", got)
			}
			return nil
		}
	}
	harness.Eventually(t, soon, "release", owned(""))

	c.scale("web", 2)
	c.waitForStatus("web", 2, 0, 0, "")
	c.relabel("orphan", "web")
	c.waitForStatus("web", 2, 0, 0, "")
	for _, owner := range owners(c.waitForPods("web", 2)) {
		if owner != ofRC+"web" {
			t.Errorf("a pod is owned by %q", owner)
		}
	}
}

func TestAcceptance05_QuotaIsReportedAndRecoveredFrom(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.LimitPods("2")
	c.create("web", 3)
	rc := c.waitForStatus("web", 2, 0, 0, "FailedCreate")
	if !strings.Contains(rc.Status.Conditions[0].Message, "exceeded quota") {
		t.Errorf("conditions %+v", rc.Status.Conditions)
	}
	c.scale("web", 2)
	c.waitForStatus("web", 2, 0, 0, "")
}

func TestAcceptance06_ReadyPodsBecomeAvailable(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create("web", 2, func(rc *v1.ReplicationController) { rc.Spec.MinReadySeconds = 3600 })
	since := time.Now().Truncate(time.Second)
	for _, pod := range c.waitForPods("web", 2) {
		c.setReady(pod.Name, since)
	}
	c.waitForStatus("web", 2, 2, 0, "")
	// However long that took, they are available some seconds from now.
	after := time.Since(since).Truncate(time.Second) + 5*time.Second
	patch := fmt.Appendf(nil, `{"spec":{"minReadySeconds":%d}}`, int(after.Seconds()))
	if _, err := c.client.CoreV1().ReplicationControllers(c.ns).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitForStatus("web", 2, 2, 2, "")
	if took := time.Since(since); took < after {
		t.Errorf("available %s after being ready, want %s", took, after)
	}
}

func TestAcceptance07_DeletionOrphansUnlessAskedOtherwise(t *testing.T) {
	t.Parallel()
	_, err := controlplane.Shared(t).StartPeer(t.Context(), controlplane.PeerOptions{
		Controllers: []string{"garbage-collector-controller"},
		Args:        []string{"--leader-elect=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := start(t)
	background := metav1.DeletePropagationBackground
	for _, test := range []struct {
		name    string
		options metav1.DeleteOptions
		left    int
	}{{"kept", metav1.DeleteOptions{}, 2}, {"collected", metav1.DeleteOptions{PropagationPolicy: &background}, 0}} {
		c.create(test.name, 2)
		before := slices.Sorted(maps.Keys(owners(c.waitForPods(test.name, 2))))
		c.waitForStatus(test.name, 2, 0, 0, "")
		writes := len(c.Writes(podResource))
		if err := c.client.CoreV1().ReplicationControllers(c.ns).Delete(t.Context(), test.name, test.options); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, soon, "end of "+test.name, func(ctx context.Context) error {
			if _, err := c.client.CoreV1().ReplicationControllers(c.ns).Get(ctx, test.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return errors.Join(errors.New("it is still there"), err)
			}
			return nil
		})
		left := owners(c.waitForPods(test.name, test.left))
		if test.left > 0 && !slices.Equal(slices.Sorted(maps.Keys(left)), before) {
			t.Errorf("pods %v are left of %v", left, before)
		}
		if test.left == 0 {
			// A pod that was collected before the end of its owner was seen was
			// replaced, and rightly so.
			c.controller.CatchUp()
			harness.Eventually(t, soon, "the last reconcile", func(context.Context) error {
				if status := c.controller.Work(); status.Busy > 0 || status.Depth > 0 {
					return fmt.Errorf("work %+v", status)
				}
				return nil
			})
			c.waitForPods(test.name, 0)
			writes = len(c.Writes(podResource))
		}
		for _, owner := range left {
			if owner != "" {
				t.Errorf("an orphan is owned by %q", owner)
			}
		}
		harness.Throughout(t, aWhile/2, "peace of the pods", func(context.Context) error {
			if after := c.Writes(podResource)[writes:]; len(after) > 0 {
				return fmt.Errorf("writes %v", after)
			}
			return nil
		})
	}
}

func TestAcceptance08_ReplicaSetsOfTheSameSelectorKeepTheirOwnPods(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Start(replicaset.Descriptor(), nil)
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To[int32](1),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: template("web"),
	}}
	if _, err := c.client.AppsV1().ReplicaSets(c.ns).Create(t.Context(), rs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.create("web", 1)
	c.waitForStatus("web", 1, 0, 0, "")
	got := slices.Sorted(maps.Values(owners(c.waitForPods("web", 2))))
	if want := []string{"apps/v1 ReplicaSet web", ofRC + "web"}; !slices.Equal(got, want) {
		t.Errorf("owners %v, want %v", got, want)
	}
	harness.Throughout(t, aWhile, "peace of the pods", func(ctx context.Context) error {
		if writes := c.Writes(podResource); len(writes) != 2 {
			return fmt.Errorf("writes %v", writes)
		}
		return nil
	})
}

// A reload at any moment changes nothing about where the cluster ends up.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	const controllers, high, low = 10, 8, 3
	c := start(t)
	pods := podcensus.Take(t, c.client, c.ns)
	app := func(i int) string { return fmt.Sprint("web-", i) }
	for i := range controllers {
		c.create(app(i), 0)
	}
	stop := c.controller.Reload(rand.Uint64(), 50, 20)
	for _, step := range []int{high, low} {
		pods.Reset()
		for i := range controllers {
			c.scale(app(i), int32(step))
		}
		for i := range controllers {
			harness.Eventually(t, minutes, "pods of "+app(i), func(context.Context) error { return pods.Has(app(i), step) })
		}
	}
	stop()
	for i := range controllers {
		c.waitForStatus(app(i), low, 0, 0, "")
	}
	final := func(context.Context) error {
		for i := range controllers {
			if got := pods.Of(app(i)); got.Active != low || got.Fewest < low || got.Most > high || got.Created != high {
				return fmt.Errorf("pods of %s: %+v", app(i), got)
			}
		}
		return nil
	}
	harness.Eventually(t, soon, "the final state", final) // the census may be late
	harness.Throughout(t, aWhile, "the final state", final)
}
