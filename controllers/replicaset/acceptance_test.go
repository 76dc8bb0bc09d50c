package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_PodsAreCreatedFromTheTemplate(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 3, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Labels["tier"] = "front"
		rs.Spec.Template.Annotations = map[string]string{"note": "kept"}
		rs.Spec.Template.Finalizers = []string{"example.com/held"}
	}))
	rs := c.waitForStatus("web", "three replicas", counts(3, 0, 0))
	if rs.Status.FullyLabeledReplicas != 3 || rs.Status.ObservedGeneration != 1 {
		t.Errorf("status %s", inJSON(rs.Status))
	}
	pods := c.waitForPods("web", 3)
	owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: rs.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	var wantEvents []string
	for _, pod := range pods {
		if !strings.HasPrefix(pod.Name, "web-") || len(pod.Name) != len("web-")+5 || pod.GenerateName != "web-" {
			t.Errorf("pod %q is named after %q", pod.Name, pod.GenerateName)
		}
		if !equality.Semantic.DeepEqual(pod.OwnerReferences, owner) {
			t.Errorf("pod %s: owners %s", pod.Name, inJSON(pod.OwnerReferences))
		}
		if pod.Labels["app"] != "web" || pod.Labels["tier"] != "front" || pod.Annotations["note"] != "kept" ||
			!slices.Equal(pod.Finalizers, []string{"example.com/held"}) {
			t.Errorf("pod %s: metadata %s", pod.Name, inJSON(pod.ObjectMeta))
		}
		wantEvents = append(wantEvents, "Normal replicaset-controller Created pod: "+pod.Name)
	}
	slices.Sort(wantEvents)
	harness.Eventually(t, soon, "an event for each pod", func(ctx context.Context) error {
		events, _, err := c.events(ctx, "web", "SuccessfulCreate")
		if slices.Sort(events); err == nil && !slices.Equal(events, wantEvents) {
			err = fmt.Errorf("got %v", events)
		}
		return err
	})
}

func TestAcceptance02_ReadyPodsBecomeAvailable(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("now", 3))
	c.create(newReplicaSet("later", 3, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 3600 }))
	for _, pod := range c.waitForPods("now", 3)[:2] {
		c.setPodStatus(pod.Name, readySince(time.Now()))
	}
	c.waitForStatus("now", "two available", counts(3, 2, 2))

	since := time.Now().Truncate(time.Second)
	for _, pod := range c.waitForPods("later", 3)[:2] {
		c.setPodStatus(pod.Name, readySince(since))
	}
	c.waitForStatus("later", "two ready", counts(3, 2, 0))
	// However long that took, they are available some seconds from now.
	after := time.Since(since).Truncate(time.Second) + 5*time.Second
	patch := fmt.Appendf(nil, `{"spec":{"minReadySeconds":%d}}`, int(after.Seconds()))
	if _, err := c.client.AppsV1().ReplicaSets(c.ns).Patch(t.Context(), "later", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitForStatus("later", "two available", counts(3, 2, 2))
	if took := time.Since(since); took < after {
		t.Errorf("available %s after being ready, want %s", took, after)
	}
}

func TestAcceptance03_ReplicasAreScaledUpAndDown(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 3))
	c.waitForStatus("web", "3", counts(3, 0, 0))
	deleted := 0
	for _, step := range []int32{5, 2, 0} {
		before := len(c.waitForPods("web", int(c.get("web").Status.Replicas)))
		c.scale("web", step)
		c.waitForStatus("web", fmt.Sprint(step), counts(step, 0, 0))
		c.waitForPods("web", int(step))
		deleted += max(0, before-int(step))
	}
	harness.Eventually(t, soon, "an event for each deleted pod", func(ctx context.Context) error {
		events, count, err := c.events(ctx, "web", "SuccessfulDelete")
		if err == nil && (int(count) != deleted || !strings.HasPrefix(events[0], "Normal replicaset-controller Deleted pod: web-")) {
			err = fmt.Errorf("%d: %v", count, events)
		}
		return err
	})
}

func TestAcceptance04_FailedAndTerminatingPodsAreReplaced(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 3))
	old := c.waitForPods("web", 3)
	c.setPodStatus(old[0].Name, phase(v1.PodFailed))
	c.changePod(old[1].Name, func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/held"} })
	c.deletePod(old[1].Name)
	harness.Eventually(t, soon, "two new pods beside the old ones", func(ctx context.Context) error {
		pods, err := c.list(ctx, "web")
		if err == nil && (len(pods) != 5 || !slices.Contains(names(pods), old[0].Name) || !slices.Contains(names(pods), old[1].Name)) {
			err = fmt.Errorf("pods %v", names(pods))
		}
		return err
	})
	c.waitForStatus("web", "three replicas, one terminating", all(counts(3, 0, 0), terminating(1)))
}

func TestAcceptance05_OrphansAreAdopted(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.createPod(newPod("orphan", "web"))
	c.controller.CatchUp() // there is no order between two watches
	c.create(newReplicaSet("web", 1))
	c.waitForStatus("web", "one replica", counts(1, 0, 0))
	if pods := c.waitForPods("web", 1); pods[0].Name != "orphan" || controllerOf(&pods[0]) != "web" {
		t.Errorf("pod %s of %q", pods[0].Name, controllerOf(&pods[0]))
	}

	c.createPod(newPod("surplus", "none"))
	c.create(newReplicaSet("none", 0))
	c.waitForPods("none", 0)

	c.createPod(newPod("going", "db", func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/held"} }))
	c.deletePod("going")
	c.controller.CatchUp()
	c.create(newReplicaSet("db", 1))
	c.waitForStatus("db", "one replica", all(counts(1, 0, 0), terminating(0)))
	pods, err := c.list(t.Context(), "db")
	if err != nil || len(pods) != 2 {
		t.Fatalf("pods %v, %v", names(pods), err)
	}
	for _, pod := range pods {
		if adopted := controllerOf(&pod) == "db"; adopted != (pod.Name != "going") {
			t.Errorf("pod %s is owned: %t", pod.Name, adopted)
		}
	}
}

func TestAcceptance06_StraysAreReleasedAndAdoptedAgain(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 2))
	pod := c.waitForPods("web", 2)[0]
	c.waitForStatus("web", "two replicas", counts(2, 0, 0))
	c.changePod(pod.Name, func(pod *v1.Pod) { pod.Labels["app"] = "debug" })
	c.waitForPods("web", 2)
	harness.Eventually(t, soon, "release", func(ctx context.Context) error {
		released, err := c.client.CoreV1().Pods(c.ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && len(released.OwnerReferences) > 0 {
			err = errors.New("it still has an owner")
		}
		return err
	})
	created := len(c.Writes(podResource))

	c.changePod(pod.Name, func(pod *v1.Pod) { pod.Labels["app"] = "web" })
	harness.Eventually(t, soon, "adoption and one deletion", func(context.Context) error {
		var verbs []string
		for _, write := range c.Writes(podResource)[created:] {
			verbs = append(verbs, write.Verb)
		}
		if !slices.Equal(verbs, []string{"patch", "delete"}) {
			return fmt.Errorf("writes %v", verbs)
		}
		return nil
	})
	for _, pod := range c.waitForPods("web", 2) {
		if controllerOf(&pod) != "web" {
			t.Errorf("pod %s has owners %s", pod.Name, inJSON(pod.OwnerReferences))
		}
	}
}

func TestAcceptance07_PodsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	other, err := c.client.CoreV1().ConfigMaps(c.ns).Create(t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	theirs := c.createPod(newPod("theirs", "web", func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, v1.SchemeGroupVersion.WithKind("ConfigMap"))}
	}))
	c.create(newReplicaSet("web", 1))
	c.waitForStatus("web", "one replica", counts(1, 0, 0))
	c.waitForPods("web", 2)
	after, err := c.client.CoreV1().Pods(c.ns).Get(t.Context(), "theirs", metav1.GetOptions{})
	if err != nil || after.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the other's pod was touched: %v, %v", after, err)
	}
}

func TestAcceptance08_PlainReferenceBecomesTheController(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	rs := c.create(newReplicaSet("web", 1))
	c.waitForStatus("web", "one replica", counts(1, 0, 0))
	plain := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: rs.UID}
	mine := c.waitForPods("web", 1)[0]
	c.changePod(mine.Name, func(pod *v1.Pod) { pod.OwnerReferences = []metav1.OwnerReference{plain} })
	harness.Eventually(t, soon, "adoption in place", func(ctx context.Context) error {
		pods, err := c.list(ctx, "web")
		if err != nil {
			return err
		}
		if len(pods) != 1 || pods[0].Name != mine.Name || controllerOf(&pods[0]) != "web" || len(pods[0].OwnerReferences) != 1 ||
			!ptr.Deref(pods[0].OwnerReferences[0].BlockOwnerDeletion, false) {
			return fmt.Errorf("pods %v with owners %s", names(pods), inJSON(pods[0].OwnerReferences))
		}
		return nil
	})

	// A controller reference without blockOwnerDeletion is good enough.
	c.changePod(mine.Name, func(pod *v1.Pod) { pod.OwnerReferences[0].BlockOwnerDeletion = nil })
	writes := len(c.Writes(podResource))
	c.scale("web", 2)
	c.waitForStatus("web", "two replicas", counts(2, 0, 0))
	if after := c.Writes(podResource)[writes:]; len(after) != 1 || after[0].Verb != "create" {
		t.Errorf("writes %v", after)
	}
}

func TestAcceptance09_EqualSelectorsKeepTheirOwnPods(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 1))
	c.create(newReplicaSet("twin", 2, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Selector.MatchLabels = map[string]string{"app": "web"}
		rs.Spec.Template.Labels = map[string]string{"app": "web"}
	}))
	c.waitForStatus("web", "one replica", counts(1, 0, 0))
	c.waitForStatus("twin", "two replicas", counts(2, 0, 0))
	owned := map[string]int{}
	for _, pod := range c.waitForPods("web", 3) {
		owned[controllerOf(&pod)]++
	}
	if owned["web"] != 1 || owned["twin"] != 2 {
		t.Errorf("pods by owner: %v", owned)
	}
}
