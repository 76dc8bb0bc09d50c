package statefulset

import (
	"bytes"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/claim"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/revisions"
)

// hashLabel of a revision has the hash in its name.
const hashLabel = "controller.kubernetes.io/hash"

// defaultHistoryLimit is the API's default of spec.revisionHistoryLimit.
const defaultHistoryLimit = 10

// findRevisions adopts the revisions of the set, and finds or makes the current
// and the update revision.
func (p *pass) findRevisions(ctx context.Context) error {
	if err := p.listRevisions(ctx); err != nil {
		return err
	}
	data, err := revisions.Data(&p.set.Spec.Template)
	if err != nil {
		return err
	}
	p.collisions = ptr.Deref(p.set.Status.CollisionCount, 0)
	if p.update, err = p.updateRevision(ctx, data); err != nil {
		return err
	}
	p.current = p.update
	for _, revision := range p.history {
		if revision.Name == p.set.Status.CurrentRevision {
			p.current = revision
		}
	}
	return nil
}

// listRevisions sets history, sorted. While the set is being deleted nothing is adopted.
func (p *pass) listRevisions(ctx context.Context) error {
	candidates, err := ownerindex.Candidates[*appsv1.ControllerRevision](p.revisions, ownerindex.OwnerOf(statefulSetKind, p.set))
	if err != nil {
		return fmt.Errorf("list revisions: %w", err)
	}
	var matching []*appsv1.ControllerRevision
	for _, revision := range candidates {
		if p.selector.Matches(labels.Set(revision.Labels)) {
			matching = append(matching, revision)
		}
	}
	if p.set.DeletionTimestamp == nil {
		claims := claim.Claims[*appsv1.ControllerRevision]{
			Owner:     p.set,
			OwnerKind: controllerKind,
			Kind:      "ControllerRevision",
			Selector:  p.selector,
			GetOwner:  p.freshSet,
			Patch:     claim.PatchControllerRevision(p.client),
		}
		if matching, err = claims.Claim(ctx, matching); err != nil {
			return fmt.Errorf("claim revisions: %w", err)
		}
	}
	revisions.Sort(matching)
	p.history = matching
	return nil
}

// freshSet reads the set from the API server, once a reconcile.
func (p *pass) freshSet(ctx context.Context, name string) (metav1.Object, error) {
	if p.fresh == nil {
		fresh, err := p.client.AppsV1().StatefulSets(p.set.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		p.fresh = fresh
	}
	return p.fresh, nil
}

// updateRevision returns the revision that stores data: the newest one if it
// does, an older one made the newest, or a new one. While the set is being
// deleted nothing is written, and the revision may be one that exists nowhere.
func (p *pass) updateRevision(ctx context.Context, data []byte) (*appsv1.ControllerRevision, error) {
	deleting := p.set.DeletionTimestamp != nil
	next := revisions.NextNumber(p.history)
	if count := len(p.history); count > 0 {
		newest := p.history[count-1]
		if bytes.Equal(newest.Data.Raw, data) {
			return newest, nil
		}
		if equal := revisions.WithData(p.history, data); len(equal) > 0 {
			if deleting {
				return equal[len(equal)-1], nil
			}
			renumbered, err := revisions.Renumber(ctx, p.client, equal[len(equal)-1], next)
			p.unsure.Note(p.key, err)
			return renumbered, err
		}
		if p.semanticRevisions && revisions.SameTemplate(newest.Data.Raw, data) {
			return newest, nil
		}
	}
	return p.newRevision(ctx, data, next, deleting)
}

// newRevision makes a revision, under another name if another revision has the
// first. In a namespace that is being deleted it is one that exists nowhere.
func (p *pass) newRevision(ctx context.Context, data []byte, number int64, deleting bool) (*appsv1.ControllerRevision, error) {
	hash := revisions.HashData(data, p.collisions)
	for name := revisions.Name(p.set.Name, hash); ; name = revisions.Name(p.set.Name, revisions.HashData(data, p.collisions)) {
		revision := revisions.Snapshot{
			Owner:     p.set,
			OwnerKind: controllerKind,
			Template:  &p.set.Spec.Template,
			Data:      data,
			Number:    number,
			Name:      name,
			Hash:      hash, // stays that of the first name
			HashLabel: hashLabel,
		}.Revision()
		if there := p.namesake(revision); there != nil {
			return there, nil
		}
		if deleting || p.doomed.Has(p.key, p.set.UID) {
			return revision, nil
		}
		created, _, err := revisions.Create(ctx, p.client, revision)
		if err == nil {
			return created, nil
		}
		p.doomed.Note(p.key, p.set.UID, err)
		if podcontrol.NamespaceTerminating(err) {
			return revision, nil
		}
		p.unsure.Note(p.key, err)
		if !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		p.collisions++
	}
}

// namesake returns the cached revision of the same name with the same data,
// which need not be the set's, or nil.
func (p *pass) namesake(revision *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	obj, exists, err := p.revisions.GetByKey(cache.MetaObjectToName(revision).String())
	if err != nil || !exists { // a store in memory returns no error
		return nil
	}
	there, ok := obj.(*appsv1.ControllerRevision)
	if !ok || !bytes.Equal(there.Data.Raw, revision.Data.Raw) {
		return nil
	}
	return there
}

// podFor returns the pod with ordinal as the revision that it is to be of has it.
func (p *pass) podFor(ordinal int) (*v1.Pod, error) {
	if p.current.Name == p.update.Name || !comesBack(p.set, int(p.status.CurrentReplicas), ordinal) {
		return newPod(p.set, ordinal, version{name: p.update.Name, template: &p.set.Spec.Template})
	}
	template, err := revisions.Template(p.current.Data.Raw)
	if err != nil {
		return nil, fmt.Errorf("revision %s: %w", p.current.Name, err)
	}
	return newPod(p.set, ordinal, version{name: p.current.Name, template: template})
}

// truncateHistory deletes the oldest revisions that no pod is of, beyond spec.revisionHistoryLimit.
func (p *pass) truncateHistory(ctx context.Context) error {
	limit := int(ptr.Deref(p.set.Spec.RevisionHistoryLimit, defaultHistoryLimit))
	if limit < 0 {
		return nil
	}
	live := map[string]bool{p.current.Name: true, p.update.Name: true}
	for _, pod := range p.members {
		live[revisionOf(pod.Pod)] = true
	}
	isLive := func(revision *appsv1.ControllerRevision) bool { return live[revision.Name] }
	count := -limit
	for _, revision := range p.history {
		if !isLive(revision) {
			count++
		}
	}
	return revisions.DeleteOldest(ctx, p.client, p.history, count, isLive)
}
