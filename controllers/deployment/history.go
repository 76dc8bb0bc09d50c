package deployment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// cleanUpHistory deletes the oldest revisions beyond spec.revisionHistoryLimit.
// One that still has pods, or whose status lags, is left for a later time, and
// no younger one goes in its place.
func (r *rollout) cleanUpHistory(ctx context.Context) error {
	limit := r.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	var history []*appsv1.ReplicaSet
	for _, rs := range r.old {
		if rs.DeletionTimestamp == nil {
			history = append(history, rs)
		}
	}
	excess := len(history) - int(*limit)
	if excess <= 0 {
		return nil
	}
	slices.SortStableFunc(history, func(a, b *appsv1.ReplicaSet) int {
		revisionA, okA := revisionOf(a)
		revisionB, okB := revisionOf(b)
		if okA && okB && revisionA != revisionB {
			return cmp.Compare(revisionA, revisionB)
		}
		return byAge(a, b)
	})
	for _, rs := range history[:min(excess, len(history))] {
		if rs.Status.Replicas != 0 || replicasOf(rs.Spec.Replicas) != 0 || !isObserved(rs) {
			continue
		}
		// One that somebody has given pods meanwhile is another version; its event brings the key back.
		uid, version := rs.UID, rs.ResourceVersion
		err := r.client.AppsV1().ReplicaSets(rs.Namespace).
			Delete(ctx, rs.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if err != nil && !notfound.ByAPIServer(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete old replica set %s: %w", rs.Name, err)
		}
	}
	return nil
}
