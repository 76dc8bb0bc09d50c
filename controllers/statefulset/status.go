package statefulset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// report writes the status if it differs from what is stored.
func (p *pass) report(ctx context.Context) error {
	if p.maxUnavailable {
		p.metrics.setMaxUnavailable(p.set, maxUnavailableOf(p.set))
	}
	if sameStatus(&p.set.Status, &p.status) {
		return nil
	}
	changed := *p.set // nothing else is changed, so nothing else needs a copy
	changed.Status = p.status
	_, err := p.client.AppsV1().StatefulSets(p.set.Namespace).UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// The set has changed or gone since; its event brings the key back.
		return nil
	case err != nil:
		p.unsure.note(p.key, err)
		return fmt.Errorf("update status of %s: %w", p.key, err)
	}
	return nil
}

func sameStatus(a, b *appsv1.StatefulSetStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration &&
		a.Replicas == b.Replicas && a.ReadyReplicas == b.ReadyReplicas && a.AvailableReplicas == b.AvailableReplicas &&
		a.CurrentReplicas == b.CurrentReplicas && a.UpdatedReplicas == b.UpdatedReplicas &&
		a.CurrentRevision == b.CurrentRevision && a.UpdateRevision == b.UpdateRevision &&
		ptr.Deref(a.CollisionCount, 0) == ptr.Deref(b.CollisionCount, 0) &&
		slices.Equal(a.Conditions, b.Conditions)
}
