package statefulset_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance16_ClaimsGoWithWhatOwnsThem(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, retention(deleteToo, deleteToo)))
	for i := range 3 {
		c.waitForOwners(fmt.Sprint("data-web-", i), "StatefulSet/web")
	}
	c.Proxy.Forget()
	c.holdPod("web-2")
	c.change("web", replicas(1))
	c.waitForOwners("data-web-2", "Pod/web-2")
	c.waitForPod("web-2", isTerminating)
	c.waitForOwners("data-web-1", "Pod/web-1")
	c.waitForOwners("data-web-0", "StatefulSet/web")
	// The owner was there before the deletion.
	var order []string
	for _, write := range c.Proxy.Requests(nil) {
		if write.Write() && (write.Resource == podResource || write.Resource == claimResource) {
			order = append(order, write.Verb+" "+write.Resource.Resource)
		}
	}
	if want := "[update persistentvolumeclaims update persistentvolumeclaims delete pods]"; fmt.Sprint(order) != want {
		t.Errorf("writes: %v, want %v", order, want)
	}
	c.freePod("web-2")
	c.waitForPods("web-0")
	c.waitForOwners("data-web-2", "Pod/web-2")
}

// Claims of a pod that cannot be created are owned all the same, lest they stay
// when the set is deleted.
func TestClaimsOfARefusedPodGoWithTheSet(t *testing.T) {
	t.Parallel()
	for _, policy := range []func(*appsv1.StatefulSet){parallel, func(*appsv1.StatefulSet) {}} {
		c := start(t, harness.Options{})
		c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Resource == podResource && r.Verb == "create" }, 422, 0)
		c.create(newSet("web", 1, retention(retain, deleteToo), policy))
		c.waitForOwners("data-web-0", "StatefulSet/web")
	}
}

// Each claim of a parallel set gets its owner with one request, although the
// cache does not show that at once.
func TestClaimsGetTheirOwnersOnce(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.Proxy.DelayWatches(claimResource, time.Second)
	c.create(newSet("web", 5, parallel, retention(retain, deleteToo)))
	for i := range 5 {
		c.waitForOwners(fmt.Sprint("data-web-", i), "StatefulSet/web")
	}
	updates := c.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource == claimResource && r.Verb == "update" })
	if len(updates) != 5 {
		t.Errorf("%d updates of claims: %v", len(updates), updates)
	}
}

func TestAcceptance17_RetentionPolicies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		whenScaled, whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType
		inRange, condemned      string
	}{
		{retain, deleteToo, "StatefulSet/web", "StatefulSet/web"},
		{deleteToo, retain, "", "Pod/web-1"},
		{retain, retain, "", ""},
		{deleteToo, deleteToo, "StatefulSet/web", "Pod/web-1"},
	} {
		t.Run(string(test.whenScaled+test.whenDeleted), func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{})
			// Another policy at first: a change of a running set counts.
			before, owner := retention(retain, retain), ""
			if test.whenDeleted == retain {
				before, owner = retention(retain, deleteToo), "StatefulSet/web"
			}
			c.running(newSet("web", 2, before))
			c.waitForOwners("data-web-0", owner)
			c.waitForOwners("data-web-1", owner)
			c.change("web", retention(test.whenScaled, test.whenDeleted))
			c.waitForOwners("data-web-0", test.inRange)
			c.waitForOwners("data-web-1", test.inRange)
			c.change("web", replicas(1))
			c.waitForPods("web-0")
			c.waitForOwners("data-web-0", test.inRange)
			c.waitForOwners("data-web-1", test.condemned)
		})
	}
}

func TestAcceptance18_PodWaitsForTheEndOfTheOldClaim(t *testing.T) {
	t.Parallel()
	for _, policy := range []func(*appsv1.StatefulSet){parallel, func(*appsv1.StatefulSet) {}} {
		c := start(t, harness.Options{})
		c.running(newSet("web", 3, retention(deleteToo, retain), policy))
		claim, err := c.claim(t.Context(), "data-web-2")
		if err != nil {
			t.Fatal(err)
		}
		c.change("web", replicas(2))
		c.waitForPods("web-0 web-1")
		c.waitForOwners("data-web-2", "Pod/web-2")
		c.change("web", replicas(3))
		c.waitForStatus("web", "the generation", func(*appsv1.StatefulSet) string { return "" })
		c.stays("web-0 web-1")
		c.deleteClaim("data-web-2")
		c.waitForPods("web-0 web-1 web-2")
		if again, err := c.claim(t.Context(), "data-web-2"); err != nil || again == nil || again.UID == claim.UID {
			t.Errorf("claim %v, %v", again, err)
		}
	}
}

func TestAcceptance19_ForeignControllerOfAClaim(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 3, retention(retain, retain)))
	foreign, err := c.client.CoreV1().ConfigMaps(c.ns).
		Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref := metav1.NewControllerRef(foreign, v1.SchemeGroupVersion.WithKind("ConfigMap"))
	c.patchClaim("data-web-1", fmt.Sprintf(`{"metadata":{"ownerReferences":[%s]}}`, inJSON(ref)))
	c.change("web", retention(deleteToo, deleteToo))
	c.waitForOwners("data-web-0", "StatefulSet/web")
	c.change("web", replicas(0))
	c.waitForPods("")
	c.waitForOwners("data-web-1", "ConfigMap/foreign")
	// What the garbage collector does.
	c.deleteClaim("data-web-0")
	c.deleteClaim("data-web-2")
	c.change("web", replicas(3))
	c.ready("web-0", "web-1")
	c.waitForEvent("web", v1.EventTypeWarning, "ConflictingController",
		"PersistentVolumeClaim data-web-1 has a conflicting OwnerReference that acts as a manging controller, "+
			"the retention policy is ignored for this claim")
	c.waitForOwners("data-web-1", "ConfigMap/foreign")
	c.patchClaim("data-web-1", `{"metadata":{"ownerReferences":null}}`)
	c.waitForOwners("data-web-1", "StatefulSet/web")
}

func TestAcceptance20_ClaimOfAPendingPodIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newSet("web", 1))
	c.waitForPods("web-0")
	claim, err := c.claim(t.Context(), "data-web-0")
	if err != nil || claim == nil {
		t.Fatalf("claim %v, %v", claim, err)
	}
	c.deleteClaim("data-web-0")
	harness.Eventually(t, soon, "another claim", func(ctx context.Context) error {
		if again, err := c.claim(ctx, "data-web-0"); err != nil || again == nil || again.UID == claim.UID {
			return fmt.Errorf("claim %v, %w", again, err)
		}
		return nil
	})
}

// A claim that is being deleted is not used by a new pod.
func TestPodWaitsForAClaimThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 1))
	c.change("web", replicas(0))
	c.waitForPods("")
	if err := c.client.CoreV1().PersistentVolumeClaims(c.ns).Delete(t.Context(), "data-web-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.controller.CatchUp() // claims and sets come by two watches
	c.change("web", replicas(1))
	c.waitForEvent("web", v1.EventTypeWarning, "FailedCreate",
		"Create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted")
	c.stays("")
	c.patchClaim("data-web-0", `{"metadata":{"finalizers":null}}`)
	c.waitForPods("web-0")
}

func TestAcceptance23_OrphansGoToTheNextSet(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	set := newSet("web", 2, retention(retain, deleteToo))
	old := c.running(set.DeepCopy())
	uids := []types.UID{c.uid("web-0"), c.uid("web-1")}
	c.waitForOwners("data-web-0", "StatefulSet/web")
	c.waitForOwners("data-web-1", "StatefulSet/web")

	// The garbage collector makes orphans and lets the set go; a claim is left over.
	c.Proxy.Forget()
	c.deleteSet("web", metav1.DeletePropagationOrphan)
	c.controller.CatchUp() // or a claim's owner, once removed, is set again
	for _, pod := range []string{"web-0", "web-1"} {
		c.patchPod(pod, `{"metadata":{"ownerReferences":null}}`)
	}
	c.patchClaim("data-web-0", `{"metadata":{"ownerReferences":null}}`)
	revision := c.waitForRevisions(1)[0]
	if _, err := c.client.AppsV1().ControllerRevisions(c.ns).Patch(t.Context(), revision.Name, types.MergePatchType,
		[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Throughout(t, aWhile, "orphans", func(ctx context.Context) error {
		pod, err := c.pod(ctx, "web-0")
		if err == nil && owners(pod) != "" {
			err = fmt.Errorf("owner %s", owners(pod))
		}
		return err
	})
	if _, err := c.client.AppsV1().StatefulSets(c.ns).
		Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	c.controller.CatchUp() // pods and sets come by two watches
	c.create(set)
	next := c.waitForStatus("web", "a complete set", complete(2))
	if next.UID == old.UID || next.Status.CurrentRevision != old.Status.CurrentRevision {
		t.Errorf("status %s, then %s", inJSON(old.Status), inJSON(next.Status))
	}
	for i, uid := range uids {
		c.waitForPod(fmt.Sprint("web-", i), ownedBy("StatefulSet/web"), func(pod *v1.Pod) string {
			if pod.UID != uid || pod.OwnerReferences[0].UID != next.UID {
				return "want the same pod, owned by the new set"
			}
			return ""
		})
	}
	if again := c.waitForRevisions(1)[0]; again.UID != revision.UID || again.OwnerReferences[0].UID != next.UID {
		t.Errorf("revision %s, then %s", inJSON(revision), inJSON(again))
	}
	c.waitForOwners("data-web-0", "StatefulSet/web")
	for i, want := range []types.UID{next.UID, old.UID} {
		harness.Eventually(t, soon, "the owner of a claim", func(ctx context.Context) error {
			claim, err := c.claim(ctx, fmt.Sprint("data-web-", i))
			if err != nil || claim == nil || claim.OwnerReferences[0].UID != want {
				return fmt.Errorf("claim %s, %w", inJSON(claim), err)
			}
			return nil
		})
	}
	for _, write := range c.Writes(podResource) {
		if write.Verb != "patch" {
			t.Errorf("%s of pod %s", write.Verb, write.Name)
		}
	}
}

// So does a set of before that had the name: the claim goes with that one, not
// as the policy has it.
func TestEarlierSetAsTheControllerOfAClaim(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	set := c.running(newSet("web", 1, retention(retain, retain)))
	c.change("web", replicas(0))
	c.waitForPods("")
	ref := metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	ref.UID = "earlier"
	c.patchClaim("data-web-0", fmt.Sprintf(`{"metadata":{"ownerReferences":[%s]}}`, inJSON(ref)))
	c.change("web", retention(retain, deleteToo), replicas(1))
	c.ready("web-0")
	c.waitForEvent("web", v1.EventTypeWarning, "ConflictingController",
		"PersistentVolumeClaim data-web-0 has a conflicting OwnerReference that acts as a manging controller, "+
			"the retention policy is ignored for this claim")
	claim, err := c.claim(t.Context(), "data-web-0")
	if err != nil || len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].UID != "earlier" {
		t.Errorf("claim %s, %v", inJSON(claim), err)
	}
}
