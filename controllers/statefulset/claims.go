package statefulset

import (
	"context"
	"errors"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// claimName is the name of the claim that the pod of set with ordinal has by template.
func claimName(template, set string, ordinal int) string {
	return template + "-" + nameOf(set, ordinal)
}

// newClaim returns the claim of the pod with ordinal by a template of the set.
func newClaim(set *appsv1.StatefulSet, template *v1.PersistentVolumeClaim, ordinal int) *v1.PersistentVolumeClaim {
	claim := template.DeepCopy()
	claim.Name = claimName(template.Name, set.Name, ordinal)
	claim.Namespace = set.Namespace
	claim.OwnerReferences = nil
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	if set.Spec.Selector != nil {
		maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	}
	return claim
}

// cachedClaim returns a claim of the set, nil if the cache has none. It must not be changed.
func (p *pass) cachedClaim(name string) (*v1.PersistentVolumeClaim, error) {
	obj, exists, err := p.claims.GetByKey(cache.NewObjectName(p.set.Namespace, name).String())
	if err != nil {
		return nil, fmt.Errorf("failed to retrieve PVC %s: %w", name, err)
	}
	if !exists {
		return nil, nil
	}
	claim, ok := obj.(*v1.PersistentVolumeClaim)
	if !ok {
		return nil, fmt.Errorf("failed to retrieve PVC %s: the cache holds a %T", name, obj)
	}
	return claim, nil
}

// claimsOf returns those claims of the pod with ordinal that the cache holds. They must not be changed.
func (p *pass) claimsOf(ordinal int) ([]*v1.PersistentVolumeClaim, error) {
	claims := make([]*v1.PersistentVolumeClaim, 0, len(p.set.Spec.VolumeClaimTemplates))
	for i := range p.set.Spec.VolumeClaimTemplates {
		claim, err := p.cachedClaim(claimName(p.set.Spec.VolumeClaimTemplates[i].Name, p.set.Name, ordinal))
		if err != nil {
			return nil, err
		}
		if claim != nil {
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// createClaims creates the missing claims of the pod with ordinal. All are
// tried; the error tells of all that failed, and of those that are being deleted.
func (p *pass) createClaims(ctx context.Context, ordinal int) error {
	var errs []error
	pod := nameOf(p.set.Name, ordinal)
	for i := range p.set.Spec.VolumeClaimTemplates {
		template := &p.set.Spec.VolumeClaimTemplates[i]
		claim, err := p.cachedClaim(claimName(template.Name, p.set.Name, ordinal))
		switch {
		case err != nil:
			p.claimFailed(ctx, template.Name, pod, err)
			errs = append(errs, err)
		case claim == nil:
			errs = append(errs, p.createClaim(ctx, newClaim(p.set, template, ordinal), pod))
		case claim.DeletionTimestamp != nil:
			errs = append(errs, fmt.Errorf("pvc %s is being deleted", claim.Name))
		}
	}
	return errors.Join(errs...)
}

func (p *pass) createClaim(ctx context.Context, claim *v1.PersistentVolumeClaim, pod string) error {
	_, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err == nil {
		p.claimCreated(claim.Name, pod)
		return nil
	}
	p.unsure.Note(p.key, err)
	if !apierrors.IsAlreadyExists(err) {
		p.claimFailed(ctx, claim.Name, pod, err)
	}
	return fmt.Errorf("failed to create PVC %s: %w", claim.Name, err)
}

// settleClaims aligns the claims of pod unless all of them are. Those that
// something else controls are not told of then.
func (p *pass) settleClaims(ctx context.Context, pod *v1.Pod, ordinal int) error {
	claims, err := p.claimsOf(ordinal)
	if err != nil {
		return err
	}
	scaledAway := !p.ordinals.contain(ordinal)
	for _, claim := range claims {
		if !p.retention.aligned(claim, p.set, pod, scaledAway) {
			return p.alignClaims(ctx, pod, ordinal)
		}
	}
	return nil
}

// alignClaims makes the owners of those of pod's claims that the cache holds
// the ones that the retention policy has.
func (p *pass) alignClaims(ctx context.Context, pod *v1.Pod, ordinal int) error {
	claims, err := p.claimsOf(ordinal)
	if err != nil {
		return err
	}
	scaledAway := !p.ordinals.contain(ordinal)
	for _, claim := range claims {
		if o := ownershipOf(claim, p.set, pod); !p.retention.retains() && (o.foreign || o.stale) {
			p.claimConflicts(claim.Name)
		}
		if p.retention.aligned(claim, p.set, pod, scaledAway) {
			continue
		}
		changed := p.retention.align(claim, p.set, pod, scaledAway)
		_, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
		if err != nil {
			p.unsure.Note(p.key, err)
			return fmt.Errorf("could not update claim %s for delete policy ownerRefs: %w", claim.Name, err)
		}
	}
	return nil
}

// claimsGo tells whether a claim that the pod with ordinal would have is about
// to be deleted, because an earlier pod of that name was scaled away.
func (p *pass) claimsGo(ordinal int) (bool, error) {
	if !p.retention.whenScaled {
		return false, nil
	}
	claims, err := p.claimsOf(ordinal)
	if err != nil {
		return false, err
	}
	for _, claim := range claims {
		if heldByEarlierPod(claim, nameOf(p.set.Name, ordinal)) {
			return true, nil
		}
	}
	return false, nil
}
