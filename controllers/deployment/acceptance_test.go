package deployment_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

var (
	deploymentResource = apischema.GroupResource{Group: "apps", Resource: "deployments"}
	replicaSetResource = apischema.GroupResource{Group: "apps", Resource: "replicasets"}
)

func TestAcceptance01_ANewDeployment(t *testing.T) {
	t.Parallel()
	c := start(t)
	saw := c.watchReasons("web")
	c.create(newDeployment("web", 3, annotated("test", "x"), annotated(corev1.LastAppliedConfigAnnotation, "{}")))
	saw("NewReplicaSetCreated")
	d := c.waitFor("web", "the first revision", revised("1"))
	if d.Generation != 1 || d.Annotations[revision] != "1" {
		t.Errorf("generation %d, annotations %v", d.Generation, d.Annotations)
	}
	sets, err := c.sets(t.Context(), "web")
	if err != nil || len(sets) != 1 {
		t.Fatalf("%d replica sets: %v", len(sets), err)
	}
	rs := sets[0]
	hash := rs.Labels[hashLabel]
	if rs.Name != "web-"+hash || rs.Spec.Selector.MatchLabels[hashLabel] != hash || rs.Spec.Template.Labels[hashLabel] != hash {
		t.Errorf("hash %q: %s", hash, inJSON(rs))
	}
	want := map[string]string{revision: "1", desiredReplicas: "3", maxReplicas: "4", "test": "x"}
	if !maps.Equal(rs.Annotations, want) {
		t.Errorf("annotations %v, want %v", rs.Annotations, want)
	}
	c.runPods(everyPod)
	c.waitFor("web", "completion", all(complete, progressing(corev1.ConditionTrue, "NewReplicaSetAvailable"),
		condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable")))
	pods, err := c.pods(t.Context(), "web")
	if err != nil || len(pods) != 3 {
		t.Fatalf("%d pods: %v", len(pods), err)
	}
	for i := range pods {
		if pods[i].Labels[hashLabel] != hash {
			t.Errorf("pod labels %v", pods[i].Labels)
		}
	}
	c.waitForEvent("web", "ScalingReplicaSet", fmt.Sprintf("Normal deployment-controller Scaled up replica set %s from 0 to 3", rs.Name))
	if events, err := c.events(t.Context(), "web", "ScalingReplicaSet"); err != nil || len(events) != 1 {
		t.Errorf("events %q: %v", events, err)
	}
}

// revised wants a revision.
func revised(want string) func(*appsv1.Deployment) string {
	return func(d *appsv1.Deployment) string {
		if d.Annotations[revision] != want {
			return "want revision " + want
		}
		return ""
	}
}

// stalled rolls a Deployment of image 1 out to image 2, whose pods never become ready.
func (c *cluster) stalled(replicas int32, surge, unavailable string) {
	c.t.Helper()
	c.create(newDeployment("web", replicas, rolling(surge, unavailable)))
	c.runPods(podsOf("1"))
	c.waitFor("web", "completion", complete)
	c.update("web", image("2"))
}

func TestAcceptance02_AStalledRolloutIsScaledInProportion(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.stalled(10, "3", "2")
	c.sizes("web", map[string]int32{"1": 8, "2": 5})
	c.scale("web", 30)
	c.sizes("web", map[string]int32{"1": 20, "2": 13})
}

func TestAcceptance03_AnotherStalledRolloutIsScaledInProportion(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.stalled(100, "20", "0")
	c.sizes("web", map[string]int32{"1": 100, "2": 20})
	c.scale("web", 120)
	for _, rs := range c.sizes("web", map[string]int32{"1": 117, "2": 23}) {
		if rs.Annotations[desiredReplicas] != "120" || rs.Annotations[maxReplicas] != "140" {
			t.Errorf("annotations of %s: %v", rs.Name, rs.Annotations)
		}
	}
}

func TestAcceptance04_SmallBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		replicas           int32
		surge, unavailable string
		want               map[string]int32
	}{
		"percentages let the new pod come first": {1, "25%", "25%", map[string]int32{"1": 1, "2": 1}},
		"no surge lets the old pod go first":     {1, "0", "1%", map[string]int32{"1": 0, "2": 1}},
		"one at a time":                          {2, "0", "1%", map[string]int32{"1": 1, "2": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.stalled(test.replicas, test.surge, test.unavailable)
			c.sizes("web", test.want)
		})
	}
}

func TestAcceptance05_UnreadyOldPodsGoFirstAndAvailabilityIsKept(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 10, rolling("0", "2")))
	c.runPods(podsOf("1"))
	c.waitFor("web", "completion", complete)
	pods, err := c.pods(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	sick := pods[0]
	sick.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}}
	if _, err := c.client.CoreV1().Pods(c.ns).UpdateStatus(t.Context(), &sick, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitFor("web", "nine available pods", func(d *appsv1.Deployment) string {
		if d.Status.AvailableReplicas != 9 {
			return "not nine"
		}
		return ""
	})
	bounds := c.watchBounds(8)
	c.update("web", image("2"))
	c.sizes("web", map[string]int32{"1": 8, "2": 2})
	harness.Eventually(t, soon, "eight ready pods", func(ctx context.Context) error {
		pods, err := c.pods(ctx, "web")
		if err != nil {
			return err
		}
		ready := 0
		for i := range pods {
			if pods[i].Name == sick.Name {
				return errors.New("the unready pod is still there")
			}
			if isReady(&pods[i]) {
				ready++
			}
		}
		if ready != 8 {
			return fmt.Errorf("%d pods are ready", ready)
		}
		return nil
	})
	bounds()
}

func TestAcceptance06_ARolloverDrainsAllOldReplicaSets(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.stalled(4, "1", "1")
	c.sizes("web", map[string]int32{"1": 3, "2": 2})
	c.runPods(podsOf("3"))
	c.update("web", image("3"))
	c.sizes("web", map[string]int32{"1": 0, "2": 0, "3": 4})
	c.waitFor("web", "completion", complete)
}

func TestAcceptance07_PauseAndResume(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 3))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	c.update("web", paused(true), image("2"))
	c.waitFor("web", "the pause to be reported", progressing(corev1.ConditionUnknown, "DeploymentPaused"))
	c.sizes("web", map[string]int32{"1": 3})
	c.scale("web", 5)
	c.waitFor("web", "the scaling to be observed", func(*appsv1.Deployment) string { return "" })
	if sets := c.sizes("web", map[string]int32{"1": 5}); len(sets) != 1 {
		t.Errorf("%d replica sets while it is paused", len(sets))
	}

	saw := c.watchReasons("web")
	c.update("web", paused(false))
	c.waitFor("web", "completion", all(complete, progressing(corev1.ConditionTrue, "NewReplicaSetAvailable")))
	c.sizes("web", map[string]int32{"1": 0, "2": 5})
	saw("DeploymentResumed")
}

// watchReasons collects the reasons of the Progressing condition, some of which
// are soon replaced. The function that it returns waits for one of them.
func (c *cluster) watchReasons(name string) (saw func(reason string)) {
	c.t.Helper()
	var mu sync.Mutex
	var reasons []string
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	harness.Follow(c.t, c.client.AppsV1().Deployments(c.ns), only, func(_ watch.EventType, d *appsv1.Deployment) {
		mu.Lock()
		defer mu.Unlock()
		for _, condition := range d.Status.Conditions {
			if condition.Type == appsv1.DeploymentProgressing {
				reasons = append(reasons, condition.Reason)
			}
		}
	})
	return func(reason string) {
		c.t.Helper()
		harness.Eventually(c.t, soon, "reason "+reason, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(reasons, reason) {
				return fmt.Errorf("reasons of Progressing: %v", reasons)
			}
			return nil
		})
	}
}

func TestAcceptance08_TheProgressDeadline(t *testing.T) {
	t.Parallel()
	c := start(t)
	began := time.Now()
	c.create(newDeployment("web", 2, deadline(3)))
	c.waitFor("web", "the deadline to be exceeded", progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded"))
	// The API keeps times in whole seconds.
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("reported after %s", took)
	}
	c.runPods(everyPod)
	c.waitFor("web", "completion", all(complete, progressing(corev1.ConditionTrue, "NewReplicaSetAvailable")))

	c.create(newDeployment("endless", 1, deadline(math.MaxInt32)))
	c.waitFor("endless", "completion without judgement", all(complete, noCondition(appsv1.DeploymentProgressing)))
}

func TestAcceptance09_RecreateWaitsForOldPods(t *testing.T) {
	t.Parallel()
	c := start(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "recreate-"}}
	node, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.create(newDeployment("web", 6, func(d *appsv1.Deployment) {
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		// A pod that is on a node and has time stays until its kubelet, which is not there, ends it.
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](300)
		d.Spec.Template.Spec.NodeName = node.Name
	}))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	c.update("web", image("2"))
	c.waitFor("web", "six terminating pods", func(d *appsv1.Deployment) string {
		if d.Status.TerminatingReplicas == nil || *d.Status.TerminatingReplicas != 6 {
			return "not six"
		}
		return ""
	})
	if sets := c.sizes("web", map[string]int32{"1": 0}); len(sets) != 1 {
		t.Errorf("%d replica sets while old pods are there", len(sets))
	}
	err = c.client.CoreV1().Pods(c.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.sizes("web", map[string]int32{"1": 0, "2": 6})
	c.waitFor("web", "completion", complete)
}

// As long as nobody has seen that the old ReplicaSet is scaled down, its pods may
// just be created, although there seem to be none.
func TestRecreateWaitsUntilTheScaleDownIsSeen(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.replicaSets.Stop()
	c.create(newDeployment("web", 2, func(d *appsv1.Deployment) {
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	}))
	c.waitFor("web", "the first replica set", revised("1"))
	c.update("web", image("2"))
	if sets := c.sizes("web", map[string]int32{"1": 0}); len(sets) != 1 {
		t.Errorf("%d replica sets", len(sets))
	}
	c.replicaSets.Start()
	c.sizes("web", map[string]int32{"1": 0, "2": 2})
}

func TestAcceptance10_HistoryIsBounded(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](2) }))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	for i := 2; i <= 6; i++ {
		c.update("web", image(strconv.Itoa(i)))
		c.waitFor("web", "completion", complete)
	}
	c.revisions("web", "4", "5", "6")
	c.update("web", func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](0) })
	c.revisions("web", "6")
}

// An old ReplicaSet that somebody has scaled up by hand is not deleted because
// the cache shows it without pods.
func TestAnOldReplicaSetIsDeletedAsItWasSeen(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 1))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	c.update("web", image("2"))
	c.waitFor("web", "completion", complete)
	old := ofImage(c.sizes("web", map[string]int32{"1": 0, "2": 1}), "1")
	c.deployments.CatchUp()
	release := c.Proxy.HoldWatches(replicaSetResource)
	defer release()
	c.patchSet(old.Name, `{"spec":{"replicas":1}}`)
	c.update("web", func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](0) })
	deletions := func(code int) int {
		return len(c.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Verb == "delete" && r.Resource == replicaSetResource && r.Code == code
		}))
	}
	harness.Eventually(t, soon, "a refused deletion", func(context.Context) error {
		if deletions(http.StatusConflict) == 0 {
			return errors.New("none")
		}
		return nil
	})
	if deleted := deletions(http.StatusOK); deleted > 0 {
		t.Errorf("%d replica sets were deleted", deleted)
	}
	release()
	c.revisions("web", "2") // when it has been scaled down again
}

// revisions waits until the ReplicaSets of a Deployment are these.
func (c *cluster) revisions(name string, want ...string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, fmt.Sprintf("revisions %v", want), func(ctx context.Context) error {
		sets, err := c.sets(ctx, name)
		if err != nil {
			return err
		}
		var got []string
		for _, rs := range sets {
			got = append(got, rs.Annotations[revision])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("revisions %v", got)
		}
		return nil
	})
}

func TestAcceptance11_AFormerTemplateGetsANewRevision(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 2))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	c.update("web", image("2"))
	c.waitFor("web", "completion", complete)
	c.update("web", image("1"))
	c.waitFor("web", "the third revision", func(d *appsv1.Deployment) string {
		if d.Annotations[revision] != "3" {
			return "revision " + d.Annotations[revision]
		}
		return complete(d)
	})
	sets := c.sizes("web", map[string]int32{"1": 2, "2": 0})
	if rs := ofImage(sets, "1"); len(sets) != 2 || rs.Annotations[revision] != "3" || rs.Annotations[revisionHistory] != "1" {
		t.Errorf("%d replica sets, annotations %v", len(sets), rs.Annotations)
	}
}

func TestAcceptance12_Rollback(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 1))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	for _, tag := range []string{"2", "3"} {
		c.update("web", image(tag))
		c.waitFor("web", "completion", complete)
	}
	for _, step := range []struct{ to, image, reason, message string }{
		{"1", "1", "DeploymentRollback", `Normal deployment-controller Rolled back deployment "web" to revision 1`},
		{"0", "3", "DeploymentRollback", `Normal deployment-controller Rolled back deployment "web" to revision 3`},
		{"99", "3", "DeploymentRollbackRevisionNotFound", "Warning deployment-controller Unable to find the revision to rollback to."},
		{"5", "3", "DeploymentRollbackTemplateUnchanged",
			`Warning deployment-controller The rollback revision contains the same template as current deployment "web"`},
	} {
		c.update("web", annotated(appsv1.DeprecatedRollbackTo, step.to))
		d := c.waitFor("web", "rollback to "+step.to, func(d *appsv1.Deployment) string {
			if _, ok := d.Annotations[appsv1.DeprecatedRollbackTo]; ok {
				return "the annotation is there"
			}
			return complete(d)
		})
		if got := d.Spec.Template.Spec.Containers[0].Image; got != "registry.example/c:"+step.image {
			t.Errorf("after the rollback to %s: image %s", step.to, got)
		}
		if _, ok := d.Spec.Template.Labels[hashLabel]; ok {
			t.Error("the hash label got into the deployment's template")
		}
		c.waitForEvent("web", step.reason, step.message)
	}

	// A paused one keeps its template, and what it was asked for.
	c.update("web", paused(true), annotated(appsv1.DeprecatedRollbackTo, "4"))
	still := func(d *appsv1.Deployment) string {
		if d.Annotations[appsv1.DeprecatedRollbackTo] != "4" || d.Spec.Template.Spec.Containers[0].Image != "registry.example/c:3" {
			return "it is rolled back"
		}
		return ""
	}
	c.waitFor("web", "the pause", progressing(corev1.ConditionUnknown, "DeploymentPaused"))
	harness.Throughout(t, aWhile, "a rollback that waits", func(ctx context.Context) error {
		d, err := c.client.AppsV1().Deployments(c.ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && still(d) != "" {
			err = errors.New(still(d))
		}
		return err
	})
	c.update("web", paused(false))
	c.waitFor("web", "the rollback", func(d *appsv1.Deployment) string {
		if still(d) == "" || d.Spec.Template.Spec.Containers[0].Image != "registry.example/c:1" {
			return "want image 1"
		}
		return complete(d)
	})
}

func TestAcceptance13_AnEditedReplicaSetIsACollision(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 1))
	c.waitFor("web", "the first replica set", revised("1"))
	sets, err := c.sets(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	c.patchSet(sets[0].Name, `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":5}}}}`)
	c.waitFor("web", "a collision", func(d *appsv1.Deployment) string {
		if d.Status.CollisionCount == nil || *d.Status.CollisionCount != 1 || d.Annotations[revision] != "2" {
			return "no collision"
		}
		return ""
	})
	c.revisions("web", "1", "2")
}

func TestAcceptance14_AdoptionAndRelease(t *testing.T) {
	t.Parallel()
	c := start(t)
	d := c.create(newDeployment("web", 1))
	c.waitFor("web", "the first replica set", revised("1"))
	sets, err := c.sets(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	name := sets[0].Name
	owned := func(what string) {
		t.Helper()
		harness.Eventually(t, soon, what, func(ctx context.Context) error {
			rs, err := c.client.AppsV1().ReplicaSets(c.ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			owner := metav1.GetControllerOf(rs)
			if owner == nil || owner.UID != d.UID || len(rs.OwnerReferences) != 1 || !ptr.Deref(owner.BlockOwnerDeletion, false) {
				return fmt.Errorf("owners %v", rs.OwnerReferences)
			}
			return nil
		})
	}
	c.patchSet(name, `{"metadata":{"ownerReferences":null}}`)
	owned("an orphan to be adopted")
	c.patchSet(name, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":%q}]}}`, d.UID))
	owned("a plain owner to become the controller")
	c.patchSet(name, `{"metadata":{"labels":{"app":"other"}}}`)
	c.waitFor("web", "another replica set", func(d *appsv1.Deployment) string {
		if ptr.Deref(d.Status.CollisionCount, 0) != 1 {
			return "no collision"
		}
		return ""
	})
	rs, err := c.client.AppsV1().ReplicaSets(c.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || len(rs.OwnerReferences) != 0 {
		t.Errorf("owners %v: %v", rs.OwnerReferences, err)
	}
	if other := c.sizes("web", map[string]int32{"1": 1})[0]; other.Name == name || other.Labels[hashLabel] == rs.Labels[hashLabel] {
		t.Errorf("the other replica set is %s of hash %s", other.Name, other.Labels[hashLabel])
	}
}

func TestAcceptance15_ToZeroAndBack(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 3))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	c.update("web", image("2"))
	c.waitFor("web", "completion", complete)
	c.scale("web", 0)
	c.waitFor("web", "completion", all(complete, condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable")))
	c.sizes("web", map[string]int32{"1": 0, "2": 0})
	c.scale("web", 6)
	c.waitFor("web", "completion", complete)
	c.sizes("web", map[string]int32{"1": 0, "2": 6})
}

func TestAcceptance16_ProportionsOnAdoption(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// before and after are the sizes by age, the oldest first; the last is of the current template.
		before, after []int32
		from, to      int32
	}{
		"up":                        {[]int32{3, 2}, []int32{6, 4}, 5, 10},
		"down, three of them":       {[]int32{3, 8, 2}, []int32{2, 5, 1}, 13, 8},
		"one more":                  {[]int32{1, 1, 1}, []int32{1, 1, 2}, 3, 4},
		"one less":                  {[]int32{1, 1, 1}, []int32{0, 1, 1}, 3, 2},
		"the small one loses first": {[]int32{1, 8}, []int32{0, 4}, 9, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			for i, size := range test.before {
				tag := strconv.Itoa(i + 1)
				d := newDeployment("web", size, image(tag))
				rs := &appsv1.ReplicaSet{
					ObjectMeta: metav1.ObjectMeta{
						Name:        "web-" + tag,
						Labels:      map[string]string{"app": "web", hashLabel: tag},
						Annotations: map[string]string{desiredReplicas: strconv.Itoa(int(test.from)), maxReplicas: strconv.Itoa(int(test.from))},
					},
					Spec: appsv1.ReplicaSetSpec{Replicas: &size, Template: d.Spec.Template,
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", hashLabel: tag}}},
				}
				rs.Spec.Template.Labels = rs.Labels
				created, err := c.client.AppsV1().ReplicaSets(c.ns).Create(t.Context(), rs, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				// Ages are told apart in whole seconds.
				harness.Eventually(t, soon, "the next second", func(context.Context) error {
					if time.Since(created.CreationTimestamp.Time) < 1100*time.Millisecond {
						return fmt.Errorf("it is %s", time.Now())
					}
					return nil
				})
			}
			newest := strconv.Itoa(len(test.before))
			c.deployments.CatchUp() // there is no order between two watches
			c.create(newDeployment("web", test.to, image(newest), rolling("0", "1")))
			want := map[string]int32{}
			for i, size := range test.after {
				want[strconv.Itoa(i+1)] = size
			}
			c.sizes("web", want)
		})
	}
}

func TestAcceptance17_MinReadySeconds(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 1, func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 4 }))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	completed := time.Now()
	pods, err := c.pods(t.Context(), "web")
	if err != nil || len(pods) != 1 || !isReady(&pods[0]) {
		t.Fatalf("pods %s, %v", inJSON(pods), err)
	}
	if took := completed.Sub(pods[0].Status.Conditions[0].LastTransitionTime.Time); took < 4*time.Second {
		t.Errorf("available %s after it was ready", took)
	}
	c.update("web", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 1 })
	harness.Eventually(t, soon, "minReadySeconds on the replica set", func(ctx context.Context) error {
		sets, err := c.sets(ctx, "web")
		if err != nil {
			return err
		}
		if len(sets) != 1 || sets[0].Spec.MinReadySeconds != 1 {
			return fmt.Errorf("%d replica sets", len(sets))
		}
		return nil
	})
}

func TestAcceptance18_ARefusedReplicaSetIsReported(t *testing.T) {
	t.Parallel()
	c := start(t)
	allow := c.refuse("replicasets", "no replica sets here")
	c.create(newDeployment("web", 1))
	c.waitFor("web", "the refusal to be reported", progressing(corev1.ConditionFalse, "ReplicaSetCreateError"))
	c.waitForEvent("web", "ReplicaSetCreateError", "no replica sets here")
	allow()
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
}

// refuse makes the API server refuse to create a resource in the namespace.
func (c *cluster) refuse(resource, why string) (allow func()) {
	c.t.Helper()
	name := c.ns + "-" + resource
	fail := admissionv1.Fail
	policies := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(c.t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.ns}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: why}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = bindings.Create(c.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	probe := func(ctx context.Context) error {
		var err error
		switch resource {
		case "replicasets":
			d := newDeployment("probe", 0)
			_, err = c.client.AppsV1().ReplicaSets(c.ns).Create(ctx, &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Name: "probe"},
				Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](0), Selector: d.Spec.Selector, Template: d.Spec.Template},
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		default:
			err = fmt.Errorf("no probe for %s", resource)
		}
		return err
	}
	harness.Eventually(c.t, soon, "the policy to hold", func(ctx context.Context) error {
		if probe(ctx) == nil {
			return errors.New("it does not yet")
		}
		return nil
	})
	return func() {
		c.t.Helper()
		if err := bindings.Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			c.t.Fatal(err)
		}
		harness.Eventually(c.t, soon, "the policy to end", probe)
	}
}

func TestAcceptance19_AReplicaFailureIsCopied(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.LimitPods("1")
	c.create(newDeployment("web", 3))
	c.runPods(everyPod)
	c.waitFor("web", "the failure", condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate"))
	if err := c.client.CoreV1().ResourceQuotas(c.ns).Delete(t.Context(), "pods", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitFor("web", "completion", all(complete, noCondition(appsv1.DeploymentReplicaFailure)))
}

func TestAcceptance20_Deletion(t *testing.T) {
	t.Parallel()
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.create(newDeployment("web", 2))
			c.runPods(everyPod)
			c.waitFor("web", "completion", complete)
			before := len(c.Writes(replicaSetResource))
			c.delete("web", policy)
			// No garbage collector runs: the Deployment stays with its finalizer.
			c.update("web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5); image("2")(d) })
			c.waitFor("web", "the change to be observed", func(*appsv1.Deployment) string { return "" })
			c.sizes("web", map[string]int32{"1": 2})
			for _, write := range c.Writes(replicaSetResource)[before:] {
				if write.Subresource == "" {
					t.Errorf("the deletion wrote %+v", write)
				}
			}
		})
	}
}

func TestAcceptance21_AStopInTheMidstOfARollout(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.create(newDeployment("web", 10, rolling("2", "1")))
	c.runPods(everyPod)
	c.waitFor("web", "completion", complete)
	bounds := c.watchBounds(9)
	c.update("web", image("2"))
	harness.Eventually(t, soon, "the rollout to begin", func(ctx context.Context) error {
		sets, err := c.sets(ctx, "web")
		if err == nil && len(sets) < 2 {
			err = errors.New("one replica set")
		}
		return err
	})
	c.deployments.Stop()
	harness.Throughout(t, aWhile, "availability", c.atLeastReady("web", 9))
	c.deployments.Start()
	c.waitFor("web", "completion", complete)
	bounds()
	if sets := c.sizes("web", map[string]int32{"1": 0, "2": 10}); len(sets) != 2 {
		t.Errorf("%d replica sets", len(sets))
	}
}

func TestAcceptance21_WorkersAreResizedWhileManyRollOut(t *testing.T) {
	t.Parallel()
	const count = 50
	c := start(t)
	c.runPods(everyPod)
	name := func(i int) string { return fmt.Sprint("web-", i) }
	for i := range count {
		c.create(newDeployment(name(i), 1, rolling("1", "0")))
	}
	for i := range count {
		c.waitFor(name(i), "completion", complete)
	}
	c.deployments.Resize(5)
	bounds := c.watchBounds(1)
	for i := range count {
		switch i {
		case count / 3:
			c.deployments.Resize(1)
		case count * 2 / 3:
			c.deployments.Resize(10)
		}
		c.update(name(i), image("2"))
	}
	for i := range count {
		c.waitFor(name(i), "the rollout", complete)
	}
	bounds()
	list, err := c.client.AppsV1().ReplicaSets(c.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2*count {
		t.Errorf("%d replica sets, want two for each deployment: %v", len(list.Items), err)
	}
}

// atLeastReady is a condition on the pods of an app.
func (c *cluster) atLeastReady(app string, least int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := c.pods(ctx, app)
		if err != nil {
			return err
		}
		ready := 0
		for i := range pods {
			if isReady(&pods[i]) {
				ready++
			}
		}
		if ready < least {
			return fmt.Errorf("%d pods are ready", ready)
		}
		return nil
	}
}

func TestAcceptance22_TwoDeploymentsWithOneSelector(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.runPods(everyPod)
	c.create(newDeployment("web", 2))
	c.create(newDeployment("twin", 3, func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels = map[string]string{"app": "web"}
		d.Spec.Template.Labels = map[string]string{"app": "web"}
		image("2")(d)
	}))
	c.waitFor("web", "completion", complete)
	c.waitFor("twin", "completion", complete)
	c.sizes("web", map[string]int32{"1": 2})
	c.sizes("twin", map[string]int32{"2": 3})
}

// The same rollouts while both controllers are restarted, aborted and re-sized
// end as they would otherwise, and never go beyond their bounds.
func TestReload_RolloutsScalingsAndDeletionsEndTheSame(t *testing.T) {
	t.Parallel()
	const count, replicas = 20, 4
	c := start(t)
	c.runPods(everyPod)
	name := func(i int) string { return fmt.Sprintf("web-%d", i) }
	for i := range count {
		c.create(newDeployment(name(i), replicas, rolling("1", "1")))
	}
	for i := range count {
		c.waitFor(name(i), "completion", complete)
	}
	stopDeployments, stopReplicaSets := c.deployments.Disturb(7), c.replicaSets.Disturb(8)
	bounds := c.watchBounds(replicas - 1)
	for i := range count {
		c.update(name(i), image("2"))
	}
	for i := range count {
		c.waitFor(name(i), "the rollout", complete)
	}
	bounds()
	for i := range count {
		c.scale(name(i), 6)
	}
	for i := range count {
		c.waitFor(name(i), "the scale-up", complete)
		c.scale(name(i), 1)
	}
	for i := range count {
		c.waitFor(name(i), "the scale-down", complete)
	}
	stopDeployments()
	stopReplicaSets()
	for i := range count {
		sets, err := c.sets(t.Context(), name(i))
		if err != nil {
			t.Fatal(err)
		}
		if len(sets) != 2 || *sets[0].Spec.Replicas+*sets[1].Spec.Replicas != 1 {
			t.Errorf("%s: %s", name(i), inJSON(sets))
		}
	}
	// Requests that a stop has cancelled say nothing about the objects.
	warnings, err := c.client.CoreV1().Events(c.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	if err != nil || len(warnings.Items) > 0 {
		t.Errorf("events %s, %v", inJSON(warnings.Items), err)
	}
}

// watchBounds checks until it is ended that every app has enough ready pods.
func (c *cluster) watchBounds(least int) (end func()) {
	c.t.Helper()
	var reported sync.Once
	return c.followPods(func(_ context.Context, pods cache.Store, pod *corev1.Pod) {
		ready := 0
		for _, obj := range pods.List() {
			other, ok := obj.(*corev1.Pod)
			if ok && other.Labels["app"] == pod.Labels["app"] && other.DeletionTimestamp == nil && isReady(other) {
				ready++
			}
		}
		if ready < least {
			reported.Do(func() { c.t.Errorf("%s had %d ready pods, fewer than %d", pod.Labels["app"], ready, least) })
		}
	})
}
