package daemonset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/revisions"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/templatehash"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func limit(revisions int32) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Spec.RevisionHistoryLimit = ptr.To(revisions) }
}

// waitForRevisions waits until app has revisions with these numbers.
func (c *cluster) waitForRevisions(app string, numbers ...int64) []appsv1.ControllerRevision {
	c.t.Helper()
	var found []appsv1.ControllerRevision
	harness.Eventually(c.t, soon, fmt.Sprintf("revisions %v", numbers), func(ctx context.Context) error {
		var err error
		if found, err = c.revisions(ctx, app); err != nil {
			return err
		}
		var got []int64
		for i := range found {
			got = append(got, found[i].Revision)
		}
		if !slices.Equal(got, numbers) {
			return fmt.Errorf("revisions %v", got)
		}
		return nil
	})
	return found
}

func TestHistory03_ReturnToAnEarlierTemplate(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.keepReady("agent")
	c.create(newDaemonSet("agent", func(ds *appsv1.DaemonSet) {
		metav1.SetMetaDataAnnotation(&ds.ObjectMeta, "kubernetes.io/change-cause", "first")
	}))
	c.waitUntil("agent", "the first template", images(2, 0))
	first := c.waitForRevisions("agent", 1)[0]
	if first.Annotations["kubernetes.io/change-cause"] != "first" || first.Labels["controller-revision-hash"] == "" ||
		first.Name != "agent-"+first.Labels["controller-revision-hash"] || first.Labels["app"] != "agent" {
		t.Errorf("revision %s", inJSON(first.ObjectMeta))
	}
	c.change("agent", image("2"))
	c.waitUntil("agent", "the second template", images(0, 2))
	c.waitForStatus("agent", status{2, 2, 0, 2, 2, 2})

	// As `kubectl rollout undo` does it.
	live, err := json.Marshal(c.get("agent"))
	if err != nil {
		t.Fatal(err)
	}
	undone, err := strategicpatch.StrategicMergePatch(live, first.Data.Raw, appsv1.DaemonSet{})
	if err != nil || !strings.Contains(string(undone), "registry.example/c:1") {
		t.Fatalf("patched %s, %v", undone, err)
	}
	_, err = c.client.AppsV1().DaemonSets(c.ns).Patch(t.Context(), "agent", types.StrategicMergePatchType, first.Data.Raw, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.waitUntil("agent", "the first template again", images(2, 0))
	c.waitForStatus("agent", status{2, 2, 0, 2, 2, 2})
	if history := c.waitForRevisions("agent", 2, 3); history[1].Name != first.Name {
		t.Errorf("the newest revision is %s, want %s", history[1].Name, first.Name)
	}
}

func TestHistory04_OldRevisionsAreDeleted(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	c.keepReady("agent")
	c.create(newDaemonSet("agent", limit(2)))
	for i := 2; i <= 5; i++ {
		c.waitForStatus("agent", status{1, 1, 0, 1, 1, 1})
		c.change("agent", image(fmt.Sprint(i)))
	}
	c.waitForStatus("agent", status{1, 1, 0, 1, 1, 1})
	c.waitForRevisions("agent", 3, 4, 5)
}

func TestHistory05_RevisionsOfLivePodsStay(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	c.startReady(newDaemonSet("agent", limit(0)), 1, 2)
	c.change("agent", image("2"))
	c.waitUntil("agent", "half of a roll-out", images(1, 1))
	c.waitForRevisions("agent", 1, 2)
	c.always("agent", "half of a roll-out", images(1, 1))
	c.waitForRevisions("agent", 1, 2)
	c.keepReady("agent")
	c.waitForStatus("agent", status{2, 2, 0, 2, 2, 2})
	c.waitForRevisions("agent", 2)
}

func TestHistory07_NamesCollide(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	found := c.startReady(newDaemonSet("agent", onDelete), 1, 2)
	ds := c.get("agent")
	next := ds.DeepCopy()
	image("2")(next)
	data, err := revisions.Data(&ds.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	hash := templatehash.Compute(&next.Spec.Template, nil)
	_, err = c.client.AppsV1().ControllerRevisions(c.ns).Create(t.Context(), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: "agent-" + hash, Labels: map[string]string{"app": "agent", "controller-revision-hash": hash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Data:     runtime.RawExtension{Raw: []byte(strings.Replace(string(data), "c:1", "c:other", 1))},
		Revision: 7,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The revision of the first template is the newest once more.
	c.waitForRevisions("agent", 7, 8)
	c.change("agent", image("2"))
	c.waitForRevisions("agent", 7, 8, 9)
	after := c.waitForStatus("agent", status{desired: 2, current: 2, ready: 2, available: 2})
	if ptr.Deref(after.Status.CollisionCount, 0) != 1 {
		t.Errorf("collision count %s", inJSON(after.Status))
	}
	c.deletePod(found[1][0].Name)
	replaced := c.waitUntil("agent", "a pod of the new template", images(1, 1))
	if got := replaced[1][0].Labels["controller-revision-hash"]; got != templatehash.Compute(&after.Spec.Template, after.Status.CollisionCount) {
		t.Errorf("hash %s", got)
	}
	// The count is not lost with the next status.
	c.setPodStatus(ready, replaced[1][0])
	after = c.waitForStatus("agent", status{2, 2, 0, 2, 1, 2})
	if ptr.Deref(after.Status.CollisionCount, 0) != 1 {
		t.Errorf("collision count %s", inJSON(after.Status))
	}
}

func TestHistory08_DuplicatesAreMerged(t *testing.T) {
	t.Parallel()
	c := start(t, 2)
	// The pod on node 1 is of an older template, and stays so.
	found := c.startReady(newDaemonSet("agent", onDelete), 1, 2)
	oldHash := found[1][0].Labels["controller-revision-hash"]
	c.change("agent", image("2"))
	c.waitForRevisions("agent", 1, 2)
	c.deletePod(found[2][0].Name)
	found = c.waitUntil("agent", "a pod of the new template", images(1, 1))
	history := c.waitForRevisions("agent", 1, 2)

	duplicate := history[1].DeepCopy()
	duplicate.ObjectMeta = metav1.ObjectMeta{
		Name: "agent-duplicate", OwnerReferences: duplicate.OwnerReferences,
		Labels: map[string]string{"app": "agent", "controller-revision-hash": "duplicate"},
	}
	duplicate.Revision = 5
	if _, err := c.client.AppsV1().ControllerRevisions(c.ns).Create(t.Context(), duplicate, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.touch("agent")
	c.waitForRevisions("agent", 1, 5)
	c.waitUntil("agent", "the same pods with the hash that is left", func(p pods) string {
		if p[2][0].Labels["controller-revision-hash"] != "duplicate" || p[1][0].Labels["controller-revision-hash"] != oldHash {
			return inJSON(p)
		}
		return same(found)(p)
	})
}

func TestHistory10_OrphanedRevisionsAreAdopted(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	c.create(newDaemonSet("agent"))
	c.waitForStatus("agent", status{desired: 1, current: 1, updated: 1})
	revision := c.waitForRevisions("agent", 1)[0]
	api := c.client.AppsV1().ControllerRevisions(c.ns)
	for _, patch := range []string{
		`{"metadata":{"ownerReferences":null}}`,
		// Without a hash it gets its name as one.
		`{"metadata":{"ownerReferences":null,"labels":{"controller-revision-hash":null}}}`,
	} {
		if _, err := api.Patch(t.Context(), revision.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, soon, "the adoption", func(ctx context.Context) error {
			adopted, err := api.Get(ctx, revision.Name, metav1.GetOptions{})
			if err == nil && (metav1.GetControllerOf(adopted) == nil || adopted.Labels["controller-revision-hash"] == "") {
				err = fmt.Errorf("metadata %s", inJSON(adopted.ObjectMeta))
			}
			return err
		})
	}
	// One that matches no more is released.
	if _, err := api.Patch(t.Context(), revision.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, soon, "the release", func(ctx context.Context) error {
		released, err := api.Get(ctx, revision.Name, metav1.GetOptions{})
		if err == nil && len(released.OwnerReferences) > 0 {
			err = fmt.Errorf("owners %s", inJSON(released.OwnerReferences))
		}
		return err
	})
}
