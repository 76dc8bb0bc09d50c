package statefulset_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/revisions"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// withoutClaims makes sets of pods alone.
func withoutClaims(set *appsv1.StatefulSet) { set.Spec.VolumeClaimTemplates = nil }

// rollOut changes the image of the only pod, and waits for the end.
func (c *cluster) rollOut(tag string) *appsv1.StatefulSet {
	c.t.Helper()
	c.change("web", image(tag))
	c.waitForPod("web-0", hasImage(tag))
	c.ready("web-0")
	return c.waitForStatus("web", "a complete update", complete(1))
}

func TestRevisions03_RollbackFindsTheOldRevision(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	first := c.running(newSet("web", 1, withoutClaims)).Status.CurrentRevision
	second := c.rollOut("2").Status.CurrentRevision
	back := c.rollOut("1").Status.CurrentRevision
	if back != first || second == first {
		t.Errorf("revisions %s, %s, %s", first, second, back)
	}
	history := c.waitForRevisions(2, 3)
	if history[0].Name != second || history[1].Name != first {
		t.Errorf("revisions %s, %s", history[0].Name, history[1].Name)
	}
}

// A rollback before the update has come to a pod leaves that pod alone.
func TestRevisions03_RollbackOfAPartitionedUpdate(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	first := c.running(newSet("web", 2, withoutClaims, partition(1))).Status.CurrentRevision
	uid0, uid1 := c.uid("web-0"), c.uid("web-1")
	c.change("web", image("2"))
	c.waitForPod("web-1", notUID(uid1), hasImage("2"))
	c.change("web", image("1"))
	c.ready("web-1")
	c.waitForPod("web-1", hasImage("1"))
	c.ready("web-1")
	set := c.waitForStatus("web", "the rollback", complete(2))
	if set.Status.CurrentRevision != first || c.uid("web-0") != uid0 {
		t.Errorf("revision %s, want %s", set.Status.CurrentRevision, first)
	}
}

func TestRevisions04_HistoryIsTruncated(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 1, withoutClaims, func(set *appsv1.StatefulSet) { set.Spec.RevisionHistoryLimit = ptr.To[int32](2) }))
	for i := 2; i <= 5; i++ {
		c.rollOut(fmt.Sprint(i))
	}
	c.waitForRevisions(3, 4, 5)
}

func TestRevisions05_RevisionsOfPodsAreKept(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 2, withoutClaims, func(set *appsv1.StatefulSet) { set.Spec.RevisionHistoryLimit = ptr.To[int32](0) }))
	uid := c.uid("web-1")
	c.change("web", image("2"))
	c.waitForPod("web-1", notUID(uid))
	harness.Throughout(t, aWhile, "two revisions", func(ctx context.Context) error {
		history, err := c.revisions(ctx)
		if err == nil && len(history) != 2 {
			err = fmt.Errorf("%d revisions", len(history))
		}
		return err
	})
	c.ready("web-1")
	c.waitForPod("web-0", hasImage("2"))
	c.ready("web-0")
	c.waitForRevisions(2)
}

// updated returns the set as the API server would have it with another image.
func (c *cluster) updated(name, tag string) *appsv1.StatefulSet {
	c.t.Helper()
	set := c.get(name)
	image(tag)(set)
	return set
}

func (c *cluster) createRevision(name string, labels map[string]string, data []byte, number int64) *appsv1.ControllerRevision {
	c.t.Helper()
	created, err := c.client.AppsV1().ControllerRevisions(c.ns).Create(c.t.Context(), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Data:       runtime.RawExtension{Raw: data},
		Revision:   number,
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) data(set *appsv1.StatefulSet) []byte {
	c.t.Helper()
	data, err := revisions.Data(&set.Spec.Template)
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}

func TestRevisions06_CollisionGivesAnotherName(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 1, withoutClaims))
	data := c.data(c.updated("web", "2"))
	c.createRevision(revisions.Name("web", revisions.HashData(data, 0)), nil, []byte(`{"spec":{}}`), 1)
	set := c.rollOut("2")
	if name := revisions.Name("web", revisions.HashData(data, 1)); set.Status.CurrentRevision != name || *set.Status.CollisionCount != 1 {
		t.Errorf("status %s, want revision %s", inJSON(set.Status), name)
	}
	// The count stays, and the first name with it.
	for _, revision := range c.waitForRevisions(1, 1, 2) {
		if revision.Name == set.Status.CurrentRevision && revision.Labels["controller.kubernetes.io/hash"] != revisions.HashData(data, 0) {
			t.Errorf("labels %v", revision.Labels)
		}
	}
}

func TestRevisions10_OrphanedRevisionIsAdopted(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 1, withoutClaims))
	uid := c.uid("web-0")
	orphan := c.waitForRevisions(1)[0]
	if _, err := c.client.AppsV1().ControllerRevisions(c.ns).Patch(t.Context(), orphan.Name, types.MergePatchType,
		[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// That wakes nobody. The next change of the set does, which must not be seen first.
	c.controller.CatchUp()
	c.change("web", func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 1 })
	harness.Eventually(t, soon, "adoption", func(ctx context.Context) error {
		history, err := c.revisions(ctx)
		if err == nil && (len(history) != 1 || history[0].UID != orphan.UID || owners(&history[0]) != "StatefulSet/web") {
			err = fmt.Errorf("revisions %s", inJSON(history))
		}
		return err
	})
	if c.uid("web-0") != uid {
		t.Error("the pod was replaced")
	}
}

// A revision of the right name and data is taken, whosever it is.
func TestNamesakeRevisionWithTheSameDataIsTaken(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.running(newSet("web", 1, withoutClaims))
	data := c.data(c.updated("web", "2"))
	name := revisions.Name("web", revisions.HashData(data, 0))
	c.createRevision(name, nil, data, 1)
	set := c.rollOut("2")
	if set.Status.CurrentRevision != name || *set.Status.CollisionCount != 0 {
		t.Errorf("status %s, want revision %s", inJSON(set.Status), name)
	}
}

func TestRevisions09_OlderEncodingRollsNothing(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	set := c.running(newSet("web", 1, withoutClaims))
	uid := c.uid("web-0")
	c.controller.Stop()
	revision := c.waitForRevisions(1)[0]
	// As a release has left it that encoded otherwise.
	data := strings.Replace(string(revision.Data.Raw), `"metadata":{`, `"metadata":{"creationTimestamp":null,`, 1)
	if err := c.client.AppsV1().ControllerRevisions(c.ns).Delete(t.Context(), revision.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	older := c.createRevision("web-older", revision.Labels, []byte(data), 1)
	if _, err := c.client.AppsV1().StatefulSets(c.ns).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"status":{"currentRevision":"web-older","updateRevision":"web-older"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.patchPod("web-0", `{"metadata":{"labels":{"controller-revision-hash":"web-older"}}}`)
	c.succeed()
	c.change("web", func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 1 })
	c.waitForStatus("web", "the same set", complete(1))
	if got := c.get("web").Status.UpdateRevision; got != "web-older" || c.uid("web-0") != uid {
		t.Errorf("update revision %s after %s", got, set.Status.UpdateRevision)
	}
	if again := c.waitForRevisions(1)[0]; again.UID != older.UID || owners(&again) != "StatefulSet/web" {
		t.Errorf("revision %s", inJSON(again))
	}
}
