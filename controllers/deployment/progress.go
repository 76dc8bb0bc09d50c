package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// hasDeadline tells whether the Deployment wants to be told of a lack of progress.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func conditionOf(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

// setCondition sets a condition, unless it says the same already.
func (r *rollout) setCondition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	if current := conditionOf(&r.d.Status, kind); current != nil && current.Status == status && current.Reason == reason {
		return
	}
	r.replaceCondition(kind, status, reason, message)
}

// replaceCondition sets a condition anew, also when it says the same already,
// so that lastUpdateTime moves.
func (r *rollout) replaceCondition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	transition := r.now
	if current := conditionOf(&r.d.Status, kind); current != nil && current.Status == status {
		transition = current.LastTransitionTime
	}
	r.removeCondition(kind)
	r.d.Status.Conditions = append(r.d.Status.Conditions, appsv1.DeploymentCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastUpdateTime: r.now, LastTransitionTime: transition,
	})
}

func (r *rollout) removeCondition(kind appsv1.DeploymentConditionType) {
	r.d.Status.Conditions = slices.DeleteFunc(slices.Clone(r.d.Status.Conditions), func(c appsv1.DeploymentCondition) bool {
		return c.Type == kind
	})
}

// setPauseCondition tells that the Deployment was paused or resumed, so that the
// time in between does not count as a lack of progress. It returns whether
// there was something to tell.
func (r *rollout) setPauseCondition() bool {
	if !hasDeadline(r.d) {
		return false
	}
	reason := ""
	if current := conditionOf(&r.d.Status, appsv1.DeploymentProgressing); current != nil {
		reason = current.Reason
	}
	switch {
	case reason == reasonProgressDeadlineExceeded:
		return false
	case r.d.Spec.Paused && reason != reasonPaused:
		r.setCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
		return true
	case !r.d.Spec.Paused && reason == reasonPaused:
		r.setCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed")
		return true
	}
	return false
}

// rolloutStatus is plainStatus, and tells whether the rollout progresses.
func (r *rollout) rolloutStatus() {
	r.plainStatus()
	if hasDeadline(r.d) {
		r.judgeProgress()
	} else {
		r.removeCondition(appsv1.DeploymentProgressing)
	}
	r.copyReplicaFailure()
	r.requeue(r.untilDeadline())
}

// judgeProgress sets the Progressing condition. A rollout that has been
// finished is not judged again, else a later lack of pods would be taken for its
// failure.
func (r *rollout) judgeProgress() {
	status := &r.d.Status
	current := conditionOf(status, appsv1.DeploymentProgressing)
	if current != nil && current.Reason == reasonNewReplicaSetAvailable && status.Replicas == status.UpdatedReplicas {
		return
	}
	subject := fmt.Sprintf("Deployment %q", r.d.Name)
	if r.newRS != nil {
		subject = fmt.Sprintf("ReplicaSet %q", r.newRS.Name)
	}
	switch {
	case r.isComplete(status):
		r.setCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonNewReplicaSetAvailable,
			subject+" has successfully progressed.")
	case r.hasProgressed():
		r.replaceCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonReplicaSetUpdated, subject+" is progressing.")
	case r.hasTimedOut(current):
		r.setCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonProgressDeadlineExceeded,
			subject+" has timed out progressing.")
	}
}

// isComplete tells whether all replicas are of the new template and available.
func (r *rollout) isComplete(status *appsv1.DeploymentStatus) bool {
	return status.UpdatedReplicas == r.bounds.replicas &&
		status.Replicas == r.bounds.replicas &&
		status.AvailableReplicas == r.bounds.replicas &&
		status.ObservedGeneration >= r.d.Generation
}

// hasProgressed compares with the status that this reconcile began with.
func (r *rollout) hasProgressed() bool {
	now, before := &r.d.Status, &r.observed
	return now.UpdatedReplicas > before.UpdatedReplicas ||
		now.Replicas-now.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		now.ReadyReplicas > before.ReadyReplicas ||
		now.AvailableReplicas > before.AvailableReplicas
}

func (r *rollout) hasTimedOut(progressing *appsv1.DeploymentCondition) bool {
	if progressing == nil || progressing.Reason == reasonNewReplicaSetAvailable {
		return false
	}
	return progressing.Reason == reasonProgressDeadlineExceeded || r.deadline(progressing).Before(r.now.Time)
}

func (r *rollout) deadline(progressing *appsv1.DeploymentCondition) time.Time {
	return progressing.LastUpdateTime.Add(time.Duration(*r.d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// untilDeadline is when to look at a rollout that nothing happens to, 0 for never.
func (r *rollout) untilDeadline() time.Duration {
	progressing := conditionOf(&r.d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(r.d) || progressing == nil || r.isComplete(&r.d.Status) {
		return 0
	}
	switch progressing.Reason {
	case reasonProgressDeadlineExceeded, reasonNewReplicaSetAvailable:
		return 0
	}
	// Times in the API are whole seconds: one more, so as not to look too early.
	return max(0, r.deadline(progressing).Sub(r.now.Time)) + time.Second
}

// copyReplicaFailure takes over why a ReplicaSet cannot make pods: the new one's
// reason, or else that of the first other one.
func (r *rollout) copyReplicaFailure() {
	failure := replicaFailure(r.newRS)
	for _, rs := range r.old {
		if failure != nil {
			break
		}
		failure = replicaFailure(rs)
	}
	current := conditionOf(&r.d.Status, appsv1.DeploymentReplicaFailure)
	switch {
	case failure == nil && current == nil:
	case failure == nil:
		r.removeCondition(appsv1.DeploymentReplicaFailure)
	case current != nil && current.Status == failure.Status && current.Reason == failure.Reason:
	default:
		transition := failure.LastTransitionTime
		if current != nil && current.Status == failure.Status {
			transition = current.LastTransitionTime
		}
		r.removeCondition(appsv1.DeploymentReplicaFailure)
		r.d.Status.Conditions = append(r.d.Status.Conditions, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: failure.Status, Reason: failure.Reason, Message: failure.Message,
			LastUpdateTime: failure.LastTransitionTime, LastTransitionTime: transition,
		})
	}
}

func replicaFailure(rs *appsv1.ReplicaSet) *appsv1.ReplicaSetCondition {
	if rs == nil {
		return nil
	}
	for i := range rs.Status.Conditions {
		if rs.Status.Conditions[i].Type == appsv1.ReplicaSetReplicaFailure {
			return &rs.Status.Conditions[i]
		}
	}
	return nil
}
