package deployment

import (
	"context"
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rollBack puts the template of an earlier revision, 0 for the last one, in the
// place of the present one. It is asked for by an annotation, which goes with
// the same write, so that it is done once.
func (r *rollout) rollBack(ctx context.Context, revision int64) error {
	if err := r.ensureNewReplicaSet(ctx); err != nil {
		return err
	}
	update := r.stored.DeepCopy()
	delete(update.Annotations, appsv1.DeprecatedRollbackTo)
	tell := r.applyRevision(update, revision)
	updated, err := r.client.AppsV1().Deployments(update.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("roll back to revision %d: %w", revision, err)
	}
	r.stored = updated
	tell()
	return nil
}

// applyRevision changes update, and returns what is to be told when it has been written.
func (r *rollout) applyRevision(update *appsv1.Deployment, revision int64) (tell func()) {
	if revision == 0 {
		if revision = r.lastRevision(); revision == 0 {
			return func() {
				r.events.Event(update, corev1.EventTypeWarning, reasonRollbackRevisionNotFound, "Unable to find last revision.")
			}
		}
	}
	for _, rs := range r.all {
		if found, ok := revisionOf(rs); !ok || found != revision {
			continue
		}
		if equalTemplates(&rs.Spec.Template, &update.Spec.Template) {
			return func() {
				r.events.Eventf(update, corev1.EventTypeWarning, reasonRollbackTemplateUnchanged,
					"The rollback revision contains the same template as current deployment %q", update.Name)
			}
		}
		update.Spec.Template = *withoutHash(rs.Spec.Template.DeepCopy())
		update.Annotations = rolledBackAnnotations(update, rs)
		return func() {
			r.events.Eventf(update, corev1.EventTypeNormal, reasonRollback, "Rolled back deployment %q to revision %d", update.Name, revision)
		}
	}
	return func() {
		r.events.Event(update, corev1.EventTypeWarning, reasonRollbackRevisionNotFound, "Unable to find the revision to rollback to.")
	}
}

// rolledBackAnnotations are the Deployment's own ones that are never copied,
// and the ReplicaSet's that once were.
func rolledBackAnnotations(d *appsv1.Deployment, rs *appsv1.ReplicaSet) map[string]string {
	result := map[string]string{}
	for key, value := range d.Annotations {
		if keptApart(key) {
			result[key] = value
		}
	}
	for key, value := range rs.Annotations {
		if !keptApart(key) {
			result[key] = value
		}
	}
	return result
}

// lastRevision is the second highest revision, 0 if there is none.
func (r *rollout) lastRevision() int64 {
	highest, second := int64(math.MinInt64), int64(0)
	for _, rs := range r.all {
		revision, ok := revisionOf(rs)
		if !ok {
			continue
		}
		if revision >= highest {
			if highest != math.MinInt64 {
				second = highest
			}
			highest = revision
		} else if revision > second {
			second = revision
		}
	}
	return second
}
