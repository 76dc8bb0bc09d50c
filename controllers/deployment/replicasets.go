package deployment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/templatehash"
)

// sortedByAge returns a copy, oldest first, equally old ones by name.
func sortedByAge(list []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	return slices.SortedFunc(slices.Values(list), byAge)
}

func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// equalTemplates compares two templates but for the label that the controller adds.
func equalTemplates(a, b *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := template.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
		return template
	}
	bare := *template
	bare.Labels = maps.Clone(template.Labels)
	delete(bare.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return &bare
}

// active are the ReplicaSets that want pods.
func active(list []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var result []*appsv1.ReplicaSet
	for _, rs := range list {
		if replicasOf(rs.Spec.Replicas) > 0 {
			result = append(result, rs)
		}
	}
	return result
}

// isObserved tells whether the status is of the present size.
func isObserved(rs *appsv1.ReplicaSet) bool { return rs.Status.ObservedGeneration >= rs.Generation }

// wanted is the sum of the sizes.
func wanted(list []*appsv1.ReplicaSet) int64 {
	var sum int64
	for _, rs := range list {
		sum += int64(replicasOf(rs.Spec.Replicas))
	}
	return sum
}

// available is the sum of the available replicas.
func available(list []*appsv1.ReplicaSet) int64 {
	var sum int64
	for _, rs := range list {
		sum += int64(rs.Status.AvailableReplicas)
	}
	return sum
}

// serving is the sum of the available replicas that will stay. A status that
// has not caught up with a scale-down still counts replicas that are about to go.
func serving(list []*appsv1.ReplicaSet) int64 {
	var sum int64
	for _, rs := range list {
		sum += int64(min(rs.Status.AvailableReplicas, replicasOf(rs.Spec.Replicas)))
	}
	return sum
}

// nextRevision is the number of the current template's revision if it has none yet.
func (r *rollout) nextRevision() int64 {
	var highest int64
	for _, rs := range r.old {
		if revision, ok := revisionOf(rs); ok {
			highest = max(highest, revision)
		}
	}
	return highest + 1
}

// syncNewReplicaSet brings revision, annotations and minReadySeconds of the new
// ReplicaSet, if there is one, up to date, and takes its revision over.
func (r *rollout) syncNewReplicaSet(ctx context.Context) error {
	if r.newRS == nil || r.synced {
		return nil
	}
	rs := r.newRS.DeepCopy()
	changed := r.annotate(rs, r.nextRevision())
	if rs.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		changed = true
	}
	if changed {
		updated, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update replica set %s: %w", rs.Name, err)
		}
		r.replace(updated)
	}
	r.synced = true
	r.setRevision(r.newRS.Annotations[revisionAnnotation])
	if hasDeadline(r.d) && conditionOf(&r.d.Status, appsv1.DeploymentProgressing) == nil {
		r.setCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFoundNewReplicaSet,
			fmt.Sprintf("Found new replica set %q", r.newRS.Name))
	}
	return nil
}

// ensureNewReplicaSet is syncNewReplicaSet, and makes the ReplicaSet if there is none.
func (r *rollout) ensureNewReplicaSet(ctx context.Context) error {
	if r.newRS != nil {
		return r.syncNewReplicaSet(ctx)
	}
	rs := r.desiredReplicaSet()
	created, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Create(ctx, rs, metav1.CreateOptions{})
	switch {
	case err == nil:
	case apierrors.IsAlreadyExists(err):
		return r.useExisting(ctx, rs.Name, err)
	case podcontrol.NamespaceTerminating(err), podcontrol.GivenUp(ctx, err):
		return err
	default:
		return r.creationFailed(ctx, rs.Name, err)
	}
	r.all = append(r.all, created)
	r.newRS = created
	r.synced = true
	if size := replicasOf(created.Spec.Replicas); size > 0 {
		r.events.Eventf(r.d, corev1.EventTypeNormal, reasonScaling, "Scaled up replica set %s from 0 to %d", created.Name, size)
	}
	r.setRevision(created.Annotations[revisionAnnotation])
	if hasDeadline(r.d) {
		r.setCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonNewReplicaSetCreated,
			fmt.Sprintf("Created new replica set %q", created.Name))
	}
	return nil
}

// desiredReplicaSet is the new ReplicaSet as it is to be created.
func (r *rollout) desiredReplicaSet() *appsv1.ReplicaSet {
	hash := templatehash.Compute(&r.d.Spec.Template, r.d.Status.CollisionCount)
	template := *r.d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels, hash)
	selector := r.d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	size := r.bounds.newSize(r.d.Spec.Strategy.Type, 0, wanted(r.all))
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       r.d.Namespace,
			Name:            replicaSetName(r.d.Name, hash),
			Labels:          maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.d, controllerKind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        &size,
			MinReadySeconds: r.d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}
	r.annotate(rs, r.nextRevision())
	setSizeAnnotations(rs, r.bounds)
	return rs
}

func withHash(labels map[string]string, hash string) map[string]string {
	result := maps.Clone(labels)
	if result == nil {
		result = map[string]string{}
	}
	result[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return result
}

// replicaSetName cuts the Deployment's name so that the whole is a valid name.
func replicaSetName(deployment, hash string) string {
	most := validation.DNS1123SubdomainMaxLength - len(hash) - 1
	return deployment[:min(len(deployment), most)] + "-" + hash
}

// useExisting deals with a name that is taken: by the very ReplicaSet that was
// to be made, which the cache did not show yet, or by another one, whose name
// has to be avoided from now on.
func (r *rollout) useExisting(ctx context.Context, name string, taken error) error {
	obj, exists, err := r.replicaSets.GetByKey(r.d.Namespace + "/" + name)
	if err != nil {
		return fmt.Errorf("look up replica set %s: %w", name, err)
	}
	rs, ok := obj.(*appsv1.ReplicaSet)
	if !exists || !ok {
		return fmt.Errorf("create replica set %s, which the cache does not show yet: %w", name, taken)
	}
	if metav1.IsControlledBy(rs, r.d) && equalTemplates(&rs.Spec.Template, &r.d.Spec.Template) {
		r.all = sortedByAge(append(r.all, rs))
		r.divide()
		return r.syncNewReplicaSet(ctx)
	}
	var collisions int32
	if r.d.Status.CollisionCount != nil {
		collisions = *r.d.Status.CollisionCount
	}
	collisions++
	r.d.Status.CollisionCount = &collisions
	if err := r.writeStatus(ctx); err != nil {
		return err
	}
	return fmt.Errorf("create replica set %s, whose name another one has: %w", name, taken)
}

// creationFailed tells why there is no new ReplicaSet.
func (r *rollout) creationFailed(ctx context.Context, name string, cause error) error {
	message := fmt.Sprintf("Failed to create new replica set %q: %v", name, cause)
	r.events.Event(r.d, corev1.EventTypeWarning, reasonReplicaSetCreateError, message)
	r.plainStatus()
	if hasDeadline(r.d) {
		r.setCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonReplicaSetCreateError, message)
	}
	if err := r.writeStatus(ctx); err != nil {
		r.log.Error("cannot report that a replica set was refused", "deployment", r.d.Namespace+"/"+r.d.Name, "err", err)
	}
	return fmt.Errorf("create replica set %s: %w", name, cause)
}

// resize sets the size of a ReplicaSet and the annotations that go with it.
func (r *rollout) resize(ctx context.Context, rs *appsv1.ReplicaSet, size int32) error {
	before := replicasOf(rs.Spec.Replicas)
	update := rs.DeepCopy()
	update.Spec.Replicas = &size
	annotated := setSizeAnnotations(update, r.bounds)
	if before == size && !annotated {
		return nil
	}
	updated, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("scale replica set %s from %d to %d: %w", rs.Name, before, size, err)
	}
	r.replace(updated)
	switch {
	case size > before:
		r.events.Eventf(r.d, corev1.EventTypeNormal, reasonScaling, "Scaled up replica set %s from %d to %d", rs.Name, before, size)
	case size < before:
		r.events.Eventf(r.d, corev1.EventTypeNormal, reasonScaling, "Scaled down replica set %s from %d to %d", rs.Name, before, size)
	}
	return nil
}

// resizeIfNeeded is resize, but leaves annotations alone when the size is right.
func (r *rollout) resizeIfNeeded(ctx context.Context, rs *appsv1.ReplicaSet, size int32) (bool, error) {
	if replicasOf(rs.Spec.Replicas) == size {
		return false, nil
	}
	return true, r.resize(ctx, rs, size)
}
