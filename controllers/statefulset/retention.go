package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// retention says which of a set's claims are deleted with what owns them (KEP-1847).
type retention struct {
	// whenScaled deletes the claims of a pod that is scaled away with it,
	// whenDeleted those of all other pods with the set.
	whenScaled, whenDeleted bool
}

// retentionOf returns the set's policy; one that is not known retains, and is
// reported by ok being false.
func retentionOf(set *appsv1.StatefulSet) (r retention, ok bool) {
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return retention{}, true
	}
	known := []appsv1.PersistentVolumeClaimRetentionPolicyType{
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	if !slices.Contains(known, policy.WhenScaled) || !slices.Contains(known, policy.WhenDeleted) {
		return retention{}, false
	}
	return retention{
		whenScaled:  policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		whenDeleted: policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}, true
}

// retains tells whether claims are never owned by anything.
func (r retention) retains() bool { return !r.whenScaled && !r.whenDeleted }

// owner of the claims of pod, or nil for none.
func (r retention) owner(set *appsv1.StatefulSet, pod *v1.Pod, scaledAway bool) *metav1.OwnerReference {
	switch {
	case r.whenScaled && scaledAway:
		return metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind(podKind))
	case r.whenDeleted && (!scaledAway || !r.whenScaled):
		return metav1.NewControllerRef(set, controllerKind)
	}
	return nil
}

// names tells whether ref names object, whatever its UID.
func names(ref *metav1.OwnerReference, object metav1.Object, kind apischema.GroupVersionKind) bool {
	return ref.APIVersion == kind.GroupVersion().String() && ref.Kind == kind.Kind && ref.Name == object.GetName()
}

// ownership is what the owner references of a claim say about a set and a pod of it.
type ownership struct {
	// stale: one of them names an earlier set or pod. The claim is about to be
	// deleted with it.
	stale bool
	// foreign: something else is the controller.
	foreign bool
	// plain: one of the set or the pod is not a controlling one.
	plain bool
	// ours are those of the set and the pod.
	ours []metav1.OwnerReference
}

func ownershipOf(claim *v1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *v1.Pod) ownership {
	var o ownership
	for i := range claim.OwnerReferences {
		ref := &claim.OwnerReferences[i]
		controls := ref.Controller != nil && *ref.Controller
		switch {
		case names(ref, set, controllerKind):
			o.add(ref, ref.UID == set.UID, controls)
		case names(ref, pod, v1.SchemeGroupVersion.WithKind(podKind)):
			o.add(ref, ref.UID == pod.UID, controls)
		case controls:
			o.foreign = true
		}
	}
	return o
}

func (o *ownership) add(ref *metav1.OwnerReference, same, controls bool) {
	if !same {
		o.stale = true
		return
	}
	o.ours = append(o.ours, *ref)
	o.plain = o.plain || !controls
}

// aligned tells whether nothing is to be done about the owner references of a
// claim: they are as policy has it, or not this controller's business.
func (r retention) aligned(claim *v1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *v1.Pod, scaledAway bool) bool {
	o := ownershipOf(claim, set, pod)
	switch {
	case o.stale:
		return true
	case o.foreign && !r.retains():
		return len(o.ours) == 0
	case o.plain:
		return false
	}
	want := r.owner(set, pod, scaledAway)
	if want == nil {
		return len(o.ours) == 0
	}
	return len(o.ours) == 1 && o.ours[0].UID == want.UID
}

// align returns claim with the owner references that policy has. The claim itself is not changed.
func (r retention) align(claim *v1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *v1.Pod, scaledAway bool) *v1.PersistentVolumeClaim {
	o := ownershipOf(claim, set, pod)
	changed := claim.DeepCopy()
	changed.OwnerReferences = slices.DeleteFunc(changed.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID == set.UID || ref.UID == pod.UID
	})
	if o.foreign && !r.retains() {
		return changed
	}
	if want := r.owner(set, pod, scaledAway); want != nil {
		changed.OwnerReferences = append(changed.OwnerReferences, *want)
	}
	return changed
}

// heldByEarlierPod tells whether claim goes with an earlier pod of name, while
// there is none at present.
func heldByEarlierPod(claim *v1.PersistentVolumeClaim, name string) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.APIVersion == v1.SchemeGroupVersion.String() && ref.Kind == podKind && ref.Name == name
	})
}
