package statefulset_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_PodsAreCreatedInOrder(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newSet("web", 3))
	for i, pods := range []string{"web-0", "web-0 web-1", "web-0 web-1 web-2"} {
		c.waitForPods(pods)
		if i == 0 {
			c.stays(pods)
		}
		claims, err := c.client.CoreV1().PersistentVolumeClaims(c.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(claims.Items) != i+1 {
			t.Fatalf("%d claims, %v", len(claims.Items), err)
		}
		c.ready(fmt.Sprint("web-", i))
	}
	set := c.waitForStatus("web", "a complete set", complete(3))
	if count := set.Status.CollisionCount; count == nil || *count != 0 {
		t.Errorf("collisionCount is %v", count)
	}
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		pod := c.waitForPod(name)
		want := map[string]string{
			"app": "web", "statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": fmt.Sprint(i),
			"controller-revision-hash": set.Status.UpdateRevision,
		}
		if inJSON(pod.Labels) != inJSON(want) {
			t.Errorf("labels of %s: %v", name, pod.Labels)
		}
		if pod.Spec.Hostname != name || pod.Spec.Subdomain != "web" || pod.GenerateName != "web-" || owners(pod) != "StatefulSet/web" {
			t.Errorf("identity of %s: %s", name, inJSON(pod))
		}
		volumes := pod.Spec.Volumes
		if len(volumes) != 1 || volumes[0].Name != "data" || volumes[0].PersistentVolumeClaim.ClaimName != "data-"+name {
			t.Errorf("volumes of %s: %s", name, inJSON(volumes))
		}
		claim, err := c.claim(t.Context(), "data-"+name)
		if err != nil || claim == nil || claim.Labels["app"] != "web" || len(claim.OwnerReferences) > 0 {
			t.Errorf("claim of %s: %s, %v", name, inJSON(claim), err)
		}
	}
	c.waitForEvent("web", v1.EventTypeNormal, "SuccessfulCreate", "Create Pod web-0 in StatefulSet web successful")
	c.waitForEvent("web", v1.EventTypeNormal, "SuccessfulCreate", "Create Claim data-web-0 Pod web-0 in StatefulSet web success")
	if revision := c.waitForRevisions(1)[0]; revision.Name != set.Status.UpdateRevision ||
		owners(&revision) != "StatefulSet/web" || "web-"+revision.Labels["controller.kubernetes.io/hash"] != revision.Name {
		t.Errorf("revision %s", inJSON(revision))
	}
}

func TestAcceptance02_ParallelPodsAreCreatedAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newSet("web", 3, parallel))
	c.waitForPods("web-0 web-1 web-2")
	c.waitForStatus("web", "three replicas", counts(3, 0, 0, 3, 3))
}

func TestAcceptance03_ScaleDownGoesInOrder(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3))
	c.holdPod("web-2")
	c.change("web", replicas(1))
	c.waitForPod("web-2", isTerminating)
	c.stays("web-0 web-1 web-2")
	c.freePod("web-2")
	c.waitForPods("web-0")
	c.waitForStatus("web", "one replica", complete(1))
	for i := range 3 {
		if claim, err := c.claim(t.Context(), fmt.Sprint("data-web-", i)); err != nil || claim == nil {
			t.Errorf("claim %d: %v, %v", i, claim, err)
		}
	}
}

func isTerminating(pod *v1.Pod) string {
	if pod.DeletionTimestamp == nil {
		return "want it to terminate"
	}
	return ""
}

func TestAcceptance03_ScaleDownOfPodsThatAreNotReady(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		notReady []string
		left     string
	}{
		{"the lowest condemned", []string{"web-1"}, "web-0"},
		{"the highest condemned", []string{"web-2"}, "web-0"},
		{"one that stays", []string{"web-0"}, "web-0 web-1 web-2"},
		{"both condemned", []string{"web-1", "web-2"}, "web-0 web-1 web-2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			c.running(newSet("web", 3))
			c.notReady(test.notReady...)
			c.waitForStatus("web", "pods that are not ready", func(set *appsv1.StatefulSet) string {
				if int(set.Status.ReadyReplicas) != 3-len(test.notReady) {
					return "ready replicas"
				}
				return ""
			})
			c.change("web", replicas(1))
			c.controller.CatchUp()
			c.waitForPods(test.left)
			c.stays(test.left)
		})
	}
}

func TestAcceptance04_ScaleUpFindsItsClaims(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3))
	claims := func() (uids []types.UID) {
		for i := range 3 {
			claim, err := c.claim(t.Context(), fmt.Sprint("data-web-", i))
			if err != nil || claim == nil {
				t.Fatalf("claim %d: %v, %v", i, claim, err)
			}
			uids = append(uids, claim.UID)
		}
		return uids
	}
	before := claims()
	c.change("web", replicas(1))
	c.waitForPods("web-0")
	c.change("web", replicas(3))
	c.ready("web-1", "web-2")
	c.waitForStatus("web", "three replicas", complete(3))
	if after := claims(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("claims %v, then %v", before, after)
	}
}

func TestAcceptance05_UpdateGoesFromTheTop(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	before := c.running(newSet("web", 3)).Status.CurrentRevision
	uids := []types.UID{c.uid("web-0"), c.uid("web-1"), c.uid("web-2")}
	c.change("web", image("2"))
	for i := 2; i >= 0; i-- {
		name := fmt.Sprint("web-", i)
		c.waitForPod(name, notUID(uids[i]), hasImage("2"))
		c.waitForStatus("web", "a step of the update", func(set *appsv1.StatefulSet) string {
			if set.Status.CurrentRevision != before || set.Status.UpdateRevision == before {
				return "want the old current revision"
			}
			return counts(3, 2, 2, int32(i), int32(3-i))(set)
		})
		for j := range i {
			c.waitForPod(fmt.Sprint("web-", j), func(pod *v1.Pod) string {
				if pod.UID != uids[j] {
					return "want the old pod"
				}
				return ""
			})
		}
		c.ready(name)
	}
	set := c.waitForStatus("web", "a complete update", complete(3))
	if set.Status.CurrentRevision == before {
		t.Error("the current revision is the old one")
	}
	c.waitForRevisions(1, 2)
}

func TestAcceptance06_PartitionIsKept(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	old := c.running(newSet("web", 3)).Status.CurrentRevision
	uid0, uid2 := c.uid("web-0"), c.uid("web-2")
	c.change("web", image("2"), partition(2))
	c.waitForPod("web-2", notUID(uid2), hasImage("2"))
	c.ready("web-2")
	c.waitForStatus("web", "a partitioned update", counts(3, 3, 3, 2, 1))
	c.deletePod("web-0")
	pod := c.waitForPod("web-0", notUID(uid0), hasImage("1"))
	if revisionOf(pod) != old {
		t.Errorf("revision of web-0: %s, want %s", revisionOf(pod), old)
	}
	c.ready("web-0")
	c.waitForStatus("web", "a partitioned update", counts(3, 3, 3, 2, 1))

	uid0, uid1 := c.uid("web-0"), c.uid("web-1")
	c.change("web", partition(0))
	c.waitForPod("web-1", notUID(uid1), hasImage("2"))
	c.ready("web-1")
	c.waitForPod("web-0", notUID(uid0), hasImage("2"))
	c.ready("web-0")
	c.waitForStatus("web", "a complete update", complete(3))
}

// A pod below the partition comes back as it was, also when it takes long to go.
func TestAcceptance06_PodBelowPartitionIsHeld(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 2, partition(5)))
	c.change("web", image("2"))
	c.waitForRevisions(1, 2)
	uid := c.uid("web-0")
	c.holdPod("web-0")
	c.deletePod("web-0")
	c.controller.CatchUp()
	c.stays("web-0 web-1")
	c.freePod("web-0")
	c.waitForPod("web-0", notUID(uid), hasImage("1"))
	c.ready("web-0")
	c.waitForStatus("web", "nothing updated", counts(2, 2, 2, 2, 0))
}

func TestAcceptance07_OnDeleteWaitsForTheUser(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, strategy(appsv1.OnDeleteStatefulSetStrategyType)))
	uids := []types.UID{c.uid("web-0"), c.uid("web-1"), c.uid("web-2")}
	c.change("web", image("2"))
	c.waitForStatus("web", "nothing updated", counts(3, 3, 3, 3, 0))
	harness.Throughout(t, aWhile, "the old pods", func(ctx context.Context) error {
		for i, uid := range uids {
			if pod, err := c.pod(ctx, fmt.Sprint("web-", i)); err != nil || pod == nil || pod.UID != uid {
				return fmt.Errorf("pod %d: %v, %w", i, pod, err)
			}
		}
		return nil
	})
	c.deletePod("web-1")
	c.waitForPod("web-1", notUID(uids[1]), hasImage("2"))
	c.ready("web-1")
	c.waitForStatus("web", "one updated", counts(3, 3, 3, 2, 1))
}

func TestAcceptance08_MaxUnavailable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		max    intstr.IntOrString
		policy appsv1.PodManagementPolicyType
		first  []string
	}{
		{intstr.FromInt32(2), appsv1.ParallelPodManagement, []string{"web-3", "web-4"}},
		{intstr.FromString("30%"), appsv1.ParallelPodManagement, []string{"web-4"}},
		{intstr.FromInt32(2), appsv1.OrderedReadyPodManagement, []string{"web-3", "web-4"}},
	} {
		t.Run(test.max.String()+" "+string(test.policy), func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			c.running(newSet("web", 5, func(set *appsv1.StatefulSet) {
				set.Spec.PodManagementPolicy = test.policy
				set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: &test.max}
			}))
			for i := range 5 {
				c.holdPod(fmt.Sprint("web-", i))
			}
			c.change("web", image("2"))
			deleted := func(ctx context.Context) error {
				var going []string
				for i := range 5 {
					name := fmt.Sprint("web-", i)
					pod, err := c.pod(ctx, name)
					if err != nil || pod == nil {
						return fmt.Errorf("%s: %v, %w", name, pod, err)
					}
					if pod.DeletionTimestamp != nil {
						going = append(going, name)
					}
				}
				if fmt.Sprint(going) != fmt.Sprint(test.first) {
					return fmt.Errorf("deleted: %v, want %v", going, test.first)
				}
				return nil
			}
			harness.Eventually(t, soon, "the first deletions", deleted)
			harness.Throughout(t, aWhile, "the first deletions", deleted)
			for _, name := range test.first {
				c.freePod(name)
			}
			// The ordered set takes the lower one first, and the higher one only when that is ready.
			c.waitForPod(test.first[0], hasImage("2"))
			if len(test.first) > 1 && test.policy == appsv1.OrderedReadyPodManagement {
				c.stays("web-0 web-1 web-2 web-3")
			}
			c.metric("statefulset_controller_statefulset_max_unavailable", float64(len(test.first)))
			for i := 4; i >= 0; i-- {
				c.freePodIfThere(fmt.Sprint("web-", i))
			}
			harness.Eventually(t, soon, "the whole update", func(ctx context.Context) error {
				for i := range 5 {
					name := fmt.Sprint("web-", i)
					if pod, err := c.pod(ctx, name); err != nil || pod == nil || pod.Status.Phase != v1.PodPending {
						continue
					}
					if err := setPhase(ctx, c.client, c.ns, name, v1.PodRunning, true, time.Now()); err != nil {
						return err
					}
				}
				set, err := c.client.AppsV1().StatefulSets(c.ns).Get(ctx, "web", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if fault := complete(5)(set); fault != "" || set.Status.ObservedGeneration != set.Generation {
					return fmt.Errorf("%s: %s", fault, inJSON(set.Status))
				}
				return nil
			})
		})
	}
}

// freePodIfThere lets go of an old pod, unless it is gone and not back yet.
func (c *cluster) freePodIfThere(name string) {
	c.t.Helper()
	if pod, err := c.pod(c.t.Context(), name); err != nil {
		c.t.Fatal(err)
	} else if pod != nil && len(pod.Finalizers) > 0 {
		c.freePod(name)
	}
}

func (c *cluster) metric(name string, want float64) {
	c.t.Helper()
	harness.Eventually(c.t, soon, name, func(context.Context) error {
		families, err := c.controller.Metrics.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			if family.GetName() == name {
				if got := family.GetMetric()[0].GetGauge().GetValue(); got != want {
					return fmt.Errorf("%s is %v, want %v", name, got, want)
				}
				return nil
			}
		}
		return fmt.Errorf("no metric %s", name)
	})
}

func TestAcceptance09_UnavailableOldPodsGoFirst(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, parallel))
	c.notReady("web-0")
	c.waitForStatus("web", "one not ready", counts(3, 2, 2, 3, 3))
	uids := []types.UID{c.uid("web-0"), c.uid("web-1"), c.uid("web-2")}
	c.change("web", image("2"))
	c.waitForPod("web-0", notUID(uids[0]), hasImage("2"))
	c.stays("web-0 web-1 web-2")
	for i := 1; i < 3; i++ {
		if c.uid(fmt.Sprint("web-", i)) != uids[i] {
			t.Errorf("web-%d was replaced while web-0 was not ready", i)
		}
	}
	c.ready("web-0")
	c.waitForPod("web-2", notUID(uids[2]), hasImage("2"))
}

func TestAcceptance10_OrderedUpdateWaitsForTheUser(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3))
	c.notReady("web-1")
	c.waitForStatus("web", "one not ready", counts(3, 2, 2, 3, 3))
	uids := []types.UID{c.uid("web-0"), c.uid("web-1"), c.uid("web-2")}
	c.change("web", image("2"))
	c.waitForStatus("web", "nothing updated", counts(3, 2, 2, 3, 0))
	harness.Throughout(t, aWhile, "the old pods", func(ctx context.Context) error {
		for i, uid := range uids {
			if pod, err := c.pod(ctx, fmt.Sprint("web-", i)); err != nil || pod == nil || pod.UID != uid {
				return fmt.Errorf("pod %d: %v, %w", i, pod, err)
			}
		}
		return nil
	})
	c.deletePod("web-1")
	c.waitForPod("web-1", notUID(uids[1]), hasImage("2"))
	c.ready("web-1")
	c.waitForPod("web-2", notUID(uids[2]), hasImage("2"))
	c.ready("web-2")
	c.waitForPod("web-0", notUID(uids[0]), hasImage("2"))
	c.ready("web-0")
	c.waitForStatus("web", "a complete update", complete(3))
}

func TestAcceptance11_MinReadySeconds(t *testing.T) {
	t.Parallel()
	clock := harness.NewClock(t, time.Now())
	c := start(t, harness.Options{Clock: clock})
	c.create(newSet("web", 2, func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 60 }))
	for i, want := range []struct {
		ready, available func(*appsv1.StatefulSet) string
	}{
		{counts(1, 1, 0, 1, 1), counts(2, 1, 1, 2, 2)},
		{counts(2, 2, 1, 2, 2), complete(2)},
	} {
		pod := fmt.Sprint("web-", i)
		c.waitForPod(pod)
		since := clock.Now().Truncate(time.Second)
		c.setPhase(pod, v1.PodRunning, true, since)
		c.waitForStatus("web", pod+" ready but not available", want.ready)
		clock.SetTime(since.Add(50 * time.Second))
		harness.Throughout(t, aWhile, pod+" not available", func(ctx context.Context) error {
			set, err := c.client.AppsV1().StatefulSets(c.ns).Get(ctx, "web", metav1.GetOptions{})
			if err == nil && want.ready(set) != "" {
				err = fmt.Errorf("status %s", inJSON(set.Status))
			}
			return err
		})
		c.waitForStatus("web", pod+" available", func(set *appsv1.StatefulSet) string {
			clock.Step(time.Second) // a reconcile that had read the time before it was set waits by that time
			return want.available(set)
		})
	}
}

func TestAcceptance12_FinishedPodsAreReplaced(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 2))
	for _, phase := range []v1.PodPhase{v1.PodFailed, v1.PodSucceeded} {
		uid := c.uid("web-1")
		c.setPhase("web-1", phase, false, time.Now())
		c.waitForPod("web-1", notUID(uid))
		c.ready("web-1")
		c.waitForStatus("web", "a complete set", complete(2))
	}
	uid := c.uid("web-1")
	c.holdPod("web-1")
	c.Proxy.Forget()
	c.setPhase("web-1", v1.PodFailed, false, time.Now())
	c.waitForPod("web-1", isTerminating)
	c.stays("web-0 web-1")
	if writes := c.Writes(podResource); len(writes) != 1 || writes[0].Verb != "delete" {
		t.Errorf("writes to pods: %v", writes)
	}
	c.freePod("web-1")
	c.waitForPod("web-1", notUID(uid))
}

func TestAcceptance13_TerminatingPodIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3))
	c.holdPod("web-1")
	c.deletePod("web-1")
	c.waitForStatus("web", "a terminating pod", counts(3, 3, 3, 2, 2))
	c.Proxy.Forget()
	c.change("web", replicas(5), image("2"))
	c.waitForStatus("web", "the generation", func(*appsv1.StatefulSet) string { return "" })
	c.stays("web-0 web-1 web-2")
	if writes := c.Writes(podResource); len(writes) > 0 {
		t.Errorf("writes to pods: %v", writes)
	}
}

func TestAcceptance14_LabelsDecideWhoseAPodIs(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3))
	uid := c.uid("web-1")
	c.patchPod("web-1", `{"metadata":{"labels":{"app":"other"}}}`)
	c.waitForPod("web-1", ownedBy(""))
	harness.Eventually(t, soon, "a refused creation", func(context.Context) error {
		for _, write := range c.Writes(podResource) {
			if write.Verb == "create" && write.Code == 409 {
				return nil
			}
		}
		return fmt.Errorf("no refusal")
	})
	c.patchPod("web-1", `{"metadata":{"labels":{"app":"web"}}}`)
	c.waitForPod("web-1", ownedBy("StatefulSet/web"), func(pod *v1.Pod) string {
		if pod.UID != uid {
			return "want the same pod"
		}
		return ""
	})
	c.waitForStatus("web", "a complete set", complete(3))

	// The name is free as soon as the pod is gone, whosever it is by then.
	c.patchPod("web-1", `{"metadata":{"labels":{"app":"other"}}}`)
	c.waitForPod("web-1", ownedBy(""))
	c.deletePod("web-1")
	c.waitForPod("web-1", notUID(uid), ownedBy("StatefulSet/web"))
}

func ownedBy(want string) func(*v1.Pod) string {
	return func(pod *v1.Pod) string {
		if got := owners(pod); got != want {
			return "want owner " + want
		}
		return ""
	}
}

// orphan is a pod that a user may have made.
func (c *cluster) orphan(name string, change func(*v1.Pod)) *v1.Pod {
	c.t.Helper()
	template := newSet("web", 0).Spec.Template
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec}
	change(pod)
	created, err := c.client.CoreV1().Pods(c.ns).Create(c.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func TestAcceptance15_OrphansAreAdoptedByName(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	withoutClaims := func(set *appsv1.StatefulSet) { set.Spec.VolumeClaimTemplates = nil }
	c.running(newSet("web", 1, withoutClaims))
	strangers := []string{"web-9x", "other-1", "web-01", "web-99999999999", "web"}
	for _, name := range strangers {
		c.orphan(name, func(*v1.Pod) {})
	}
	c.controller.Stop()
	c.change("web", replicas(2))
	uid := c.orphan("web-1", func(*v1.Pod) {}).UID
	c.succeed() // caches that are kept may show the orphan before the replica that is wanted
	c.waitForPod("web-1", ownedBy("StatefulSet/web"))
	c.ready("web-1")
	c.waitForEvent("web", v1.EventTypeNormal, "SuccessfulUpdate", "Update Pod web-1 in StatefulSet web successful")
	c.waitForPod("web-1", notUID(uid))
	c.ready("web-1")
	c.waitForStatus("web", "a complete set", complete(2))
	for _, name := range strangers {
		if fault := ownedBy("")(c.waitForPod(name)); fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

func TestAcceptance21_QuotaIsReported(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.LimitPods("2")
	c.create(newSet("web", 4, parallel))
	c.waitForStatus("web", "two replicas", counts(2, 0, 0, 2, 2))
	c.waitForEvent("web", v1.EventTypeWarning, "FailedCreate", "in StatefulSet web failed error: ")
	harness.Throughout(t, aWhile, "two pods", func(ctx context.Context) error {
		if got, err := c.names(ctx); err != nil || len(strings.Fields(got)) != 2 {
			return fmt.Errorf("pods: %s, %w", got, err)
		}
		return nil
	})
}

func TestAcceptance22_OrdinalsStartLater(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	begin := func(at int32) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: at} }
	}
	c.create(newSet("web", 3, begin(2)))
	c.ready("web-2", "web-3", "web-4")
	c.waitForStatus("web", "a complete set", complete(3))
	c.stays("web-2 web-3 web-4")

	c.change("web", begin(0))
	c.ready("web-0", "web-1")
	c.waitForPods("web-0 web-1 web-2")
	c.waitForStatus("web", "a complete set", complete(3))

	c.change("web", begin(2))
	c.waitForPods("web-0 web-1 web-2 web-3")
	c.ready("web-3")
	c.waitForPod("web-4")
	c.stays("web-0 web-1 web-2 web-3 web-4")
	c.holdPod("web-1")
	c.ready("web-4")
	c.waitForPod("web-1", isTerminating)
	c.stays("web-0 web-1 web-2 web-3 web-4")
	c.freePod("web-1")
	c.waitForPods("web-2 web-3 web-4")
}

func TestAcceptance24_RecreateDeletesAllFirst(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{Configure: func(config *schema.ControllerManagerConfiguration) {
		config.FeatureGates = map[string]bool{"StatefulSetRecreateStrategy": true}
	}})
	c.running(newSet("web", 3, strategy(appsv1.RecreateStatefulSetStrategyType)))
	for i := range 3 {
		c.holdPod(fmt.Sprint("web-", i))
	}
	c.change("web", image("2"))
	for i := range 3 {
		c.waitForPod(fmt.Sprint("web-", i), isTerminating)
	}
	c.waitForStatus("web", "Progressing", progressing(v1.ConditionTrue, "RecreateInProgress", "Deleting old revision pods"))
	c.freePod("web-0")
	c.freePod("web-2")
	c.waitForPods("web-1")
	c.stays("web-1")
	c.freePod("web-1")
	c.waitForPod("web-0", hasImage("2"))
	c.waitForStatus("web", "Progressing", progressing(v1.ConditionTrue, "RecreateInProgress", "Waiting for new-revision pods to be created"))
	c.ready("web-0", "web-1", "web-2")
	c.waitForStatus("web", "the end", func(set *appsv1.StatefulSet) string {
		if fault := complete(3)(set); fault != "" {
			return fault
		}
		return progressing(v1.ConditionFalse, "RecreateCompleted", "All pods recreated successfully")(set)
	})
}

func progressing(status v1.ConditionStatus, reason, message string) func(*appsv1.StatefulSet) string {
	return func(set *appsv1.StatefulSet) string {
		for _, condition := range set.Status.Conditions {
			if condition.Type == appsv1.StatefulSetProgressing && condition.Status == status &&
				condition.Reason == reason && condition.Message == message {
				return ""
			}
		}
		return "want Progressing " + string(status) + " " + reason
	}
}

func TestAcceptance24_RecreateNeedsItsGate(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newSet("web", 3, strategy(appsv1.RecreateStatefulSetStrategyType)))
	c.waitForEvent("web", v1.EventTypeWarning, "UnknownStrategy",
		"statefulset "+c.ns+"/web uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled")
	c.stays("")
	if writes := c.Writes(setResource); len(writes) > 0 {
		t.Errorf("writes to the set: %v", writes)
	}
}
