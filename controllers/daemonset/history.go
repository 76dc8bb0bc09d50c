package daemonset

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/claim"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/revisions"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/templatehash"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// hashLabel is on revisions and on the pods that were made by them.
const hashLabel = appsv1.DefaultDaemonSetUniqueLabelKey

// defaultHistoryLimit is what the API sets when a DaemonSet does not say.
const defaultHistoryLimit = 10

// history of a DaemonSet's templates.
type history struct {
	current *appsv1.ControllerRevision
	// old ones, sorted by number.
	old []*appsv1.ControllerRevision
}

// syncHistory makes sure that the current template has exactly one revision, which has
// the highest number. pods are all of the DaemonSet's.
func (c *daemonSetController) syncHistory(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, selector labels.Selector, pods []*v1.Pod,
) (history, error) {
	all, err := c.claimRevisions(ctx, ds, selector)
	if err != nil {
		return history{}, err
	}
	data, err := revisions.Data(&ds.Spec.Template)
	if err != nil {
		return history{}, err
	}
	h, same := divideHistory(all, data)
	number := revisions.NextNumber(h.old)
	switch {
	case len(same) == 0:
		h.current, err = c.snapshot(ctx, key, ds, data, number)
	case len(same) > 1:
		h.current, err = c.mergeDuplicates(ctx, same, pods)
	default:
		h.current = same[0]
	}
	if err != nil {
		return history{}, err
	}
	if h.current.Revision < number {
		h.current, err = revisions.Renumber(ctx, c.client, h.current, number)
	}
	return h, err
}

// divideHistory returns the history without a current revision, and the
// revisions that may be it, both sorted.
func divideHistory(all []*appsv1.ControllerRevision, data []byte) (h history, same []*appsv1.ControllerRevision) {
	revisions.Sort(all)
	same = revisions.WithData(all, data)
	current := map[types.UID]bool{}
	for _, revision := range same {
		current[revision.UID] = true
	}
	for _, revision := range all {
		if !current[revision.UID] {
			h.old = append(h.old, revision)
		}
	}
	return h, same
}

// claimRevisions adopts and releases revisions, and returns those of ds. A
// revision without a hash gets its name as one.
func (c *daemonSetController) claimRevisions(
	ctx context.Context, ds *appsv1.DaemonSet, selector labels.Selector,
) ([]*appsv1.ControllerRevision, error) {
	candidates, err := ownerindex.Candidates[*appsv1.ControllerRevision](c.revisions, ownerindex.OwnerOf(kind, ds))
	if err != nil {
		return nil, err
	}
	claims := claim.Claims[*appsv1.ControllerRevision]{
		Owner: ds, OwnerKind: controllerKind, Kind: "ControllerRevision", Selector: selector,
		GetOwner: c.liveOwner(ds), Patch: claim.PatchControllerRevision(c.client),
	}
	claimed, err := claims.Claim(ctx, candidates)
	if err != nil {
		return nil, err
	}
	for i, revision := range claimed {
		if _, labelled := revision.Labels[hashLabel]; labelled {
			continue
		}
		changed := revision.DeepCopy()
		metav1.SetMetaDataLabel(&changed.ObjectMeta, hashLabel, revision.Name)
		claimed[i], err = c.client.AppsV1().ControllerRevisions(ds.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
		if err != nil {
			return nil, fmt.Errorf("label revision %s: %w", revision.Name, err)
		}
	}
	return claimed, nil
}

// snapshot makes a revision of the current template. In a namespace that is being
// deleted it is one that exists nowhere.
func (c *daemonSetController) snapshot(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, data []byte, number int64,
) (*appsv1.ControllerRevision, error) {
	hash := templatehash.Compute(&ds.Spec.Template, ds.Status.CollisionCount)
	wanted := revisions.Snapshot{
		Owner: ds, OwnerKind: controllerKind, Template: &ds.Spec.Template, Data: data, Number: number,
		Name: revisions.Name(ds.Name, hash), Hash: hash, HashLabel: hashLabel,
	}
	if c.doomed.Has(key, ds.UID) {
		return wanted.Revision(), nil
	}
	revision, _, err := revisions.Create(ctx, c.client, wanted.Revision())
	c.doomed.Note(key, ds.UID, err)
	if podcontrol.NamespaceTerminating(err) {
		return wanted.Revision(), nil
	}
	if apierrors.IsAlreadyExists(err) {
		return nil, c.noteCollision(ctx, ds, err)
	}
	return revision, err
}

// noteCollision counts in the status that the name of a revision is taken by
// another template, so that the next reconcile finds another name. It returns
// an error in any case.
func (c *daemonSetController) noteCollision(ctx context.Context, ds *appsv1.DaemonSet, collision error) error {
	live, err := c.client.AppsV1().DaemonSets(ds.Namespace).Get(ctx, ds.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read daemonset %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	if live.UID != ds.UID || !ptr.Equal(live.Status.CollisionCount, ds.Status.CollisionCount) {
		return fmt.Errorf("found a stale collision count of daemonset %s/%s: %w", ds.Namespace, ds.Name, collision)
	}
	live.Status.CollisionCount = ptr.To(ptr.Deref(live.Status.CollisionCount, 0) + 1)
	if _, err := c.client.AppsV1().DaemonSets(ds.Namespace).UpdateStatus(ctx, live, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("count a collision of daemonset %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return collision
}

// mergeDuplicates keeps the newest of several revisions of the same template.
// Pods of the others are labelled first, so that no pod ever has the hash of a
// revision that is gone.
func (c *daemonSetController) mergeDuplicates(
	ctx context.Context, same []*appsv1.ControllerRevision, pods []*v1.Pod,
) (*appsv1.ControllerRevision, error) {
	kept, duplicates := same[len(same)-1], same[:len(same)-1]
	hash := kept.Labels[hashLabel]
	gone := map[string]bool{}
	for _, duplicate := range duplicates {
		if duplicateHash := duplicate.Labels[hashLabel]; duplicateHash != hash {
			gone[duplicateHash] = true
		}
	}
	for i, pod := range pods {
		if !gone[pod.Labels[hashLabel]] {
			continue
		}
		relabelled, err := c.relabel(ctx, pod, hash)
		if err != nil {
			return nil, err
		}
		pods[i] = relabelled
	}
	for _, duplicate := range duplicates {
		if err := revisions.Delete(ctx, c.client, duplicate); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// relabel returns pod itself if it is gone.
func (c *daemonSetController) relabel(ctx context.Context, pod *v1.Pod, hash string) (*v1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "labels": map[string]string{hashLabel: hash},
	}})
	if err != nil {
		return nil, fmt.Errorf("label pod %s: %w", pod.Name, err)
	}
	relabelled, err := c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if uidguard.Gone(err) {
		return pod, nil
	}
	if err != nil {
		return nil, fmt.Errorf("label pod %s: %w", pod.Name, err)
	}
	return relabelled, nil
}

// truncate deletes the oldest revisions that are too many. Those by which a pod
// was made are kept, since they tell of its template.
func (c *daemonSetController) truncate(ctx context.Context, ds *appsv1.DaemonSet, h history, pods []*v1.Pod) error {
	surplus := len(h.old) - int(ptr.Deref(ds.Spec.RevisionHistoryLimit, defaultHistoryLimit))
	if surplus <= 0 {
		return nil
	}
	live := map[string]bool{}
	for _, pod := range pods {
		if hash := pod.Labels[hashLabel]; hash != "" {
			live[hash] = true
		}
	}
	return revisions.DeleteOldest(ctx, c.client, h.old, surplus, func(revision *appsv1.ControllerRevision) bool {
		return live[revision.Labels[hashLabel]]
	})
}
