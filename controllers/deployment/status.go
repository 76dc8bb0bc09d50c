package deployment

import (
	"context"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// plainStatus counts replicas and tells whether enough are available.
func (r *rollout) plainStatus() {
	var ready, replicas, updated int64
	for _, rs := range r.all {
		replicas += int64(rs.Status.Replicas)
		ready += int64(rs.Status.ReadyReplicas)
	}
	if r.newRS != nil {
		updated = int64(r.newRS.Status.Replicas)
	}
	availableNow := available(r.all)
	status := &r.d.Status
	status.ObservedGeneration = r.d.Generation
	status.Replicas = count(replicas)
	status.ReadyReplicas = count(ready)
	status.UpdatedReplicas = count(updated)
	status.AvailableReplicas = count(availableNow)
	status.UnavailableReplicas = count(max(0, wanted(r.all)-availableNow))
	status.TerminatingReplicas = r.terminating()
	if availableNow >= r.bounds.minAvailable() {
		r.setCondition(appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonMinimumReplicasAvailable,
			"Deployment has minimum availability.")
	} else {
		r.setCondition(appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonMinimumReplicasUnavailable,
			"Deployment does not have minimum availability.")
	}
}

// terminating is the number of terminating pods, nil when it is not known.
func (r *rollout) terminating() *int32 {
	if !r.terminatingReplicas {
		return nil
	}
	var sum int64
	for _, rs := range r.all {
		switch {
		case rs.Status.TerminatingReplicas != nil:
			sum += int64(*rs.Status.TerminatingReplicas)
		case rs.Status.ObservedGeneration != 0:
			return nil
		}
	}
	result := count(sum)
	return &result
}

// count bounds a sum to the status fields' type.
func count(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// writeStatus writes status and revision if they differ from what the API
// server has. Counts that are on their way through a rollout wait for the next
// ones if the last write was a moment ago.
func (r *rollout) writeStatus(ctx context.Context) error {
	if r.d.Annotations[revisionAnnotation] == r.stored.Annotations[revisionAnnotation] &&
		equality.Semantic.DeepEqual(&r.d.Status, &r.stored.Status) {
		return nil
	}
	if wait := r.pace.wait(cache.MetaObjectToName(r.d), r.now.Time); wait > 0 && r.onlyCountsDiffer() {
		r.requeue(wait)
		return nil
	}
	updated, err := r.client.AppsV1().Deployments(r.d.Namespace).UpdateStatus(ctx, r.d, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update the status: %w", err)
	}
	r.pace.wrote(cache.MetaObjectToName(r.d), r.now.Time)
	r.stored = updated
	r.d.ResourceVersion = updated.ResourceVersion
	return nil
}

// onlyCountsDiffer tells whether nothing that somebody waits for has changed:
// the rollout was on its way and still is.
func (r *rollout) onlyCountsDiffer() bool {
	if r.d.Annotations[revisionAnnotation] != r.stored.Annotations[revisionAnnotation] {
		return false
	}
	if r.d.Status.ObservedGeneration != r.stored.Status.ObservedGeneration || r.hasArrived() {
		return false
	}
	// Without the new count the next reconcile would try the same name again.
	if !ptr.Equal(r.d.Status.CollisionCount, r.stored.Status.CollisionCount) {
		return false
	}
	if len(r.d.Status.Conditions) != len(r.stored.Status.Conditions) {
		return false
	}
	for _, now := range r.d.Status.Conditions {
		before := conditionOf(&r.stored.Status, now.Type)
		if before == nil || before.Status != now.Status {
			return false
		}
		if before.Reason != now.Reason && !(underWay(before.Reason) && underWay(now.Reason)) {
			return false
		}
	}
	return true
}

// hasArrived tells whether the rollout is complete and was not before, or the
// last pod of a complete one that was terminating is gone.
func (r *rollout) hasArrived() bool {
	now, before := &r.d.Status, &r.stored.Status
	if !r.isComplete(now) {
		return false
	}
	return !r.isComplete(before) ||
		ptr.Deref(now.TerminatingReplicas, 0) == 0 && ptr.Deref(before.TerminatingReplicas, 0) != 0
}

// underWay tells whether a reason of Progressing says no more than that the
// rollout goes on. All of them stand beside the status True.
func underWay(reason string) bool {
	switch reason {
	case reasonNewReplicaSetCreated, reasonFoundNewReplicaSet, reasonReplicaSetUpdated:
		return true
	}
	return false
}

// requeue asks for another reconcile after d, or sooner.
func (r *rollout) requeue(d time.Duration) {
	if d > 0 && (r.requeueAfter == 0 || d < r.requeueAfter) {
		r.requeueAfter = d
	}
}
