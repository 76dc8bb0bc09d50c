package resourcequota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-helpers/storage/volume"
)

var persistentVolumeClaims = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")

func claimEvaluator(list generic.ListFuncByNamespace) *evaluator {
	return &evaluator{
		resource: persistentVolumeClaims.GroupResource(),
		list:     list,
		matches: matching(func(name corev1.ResourceName) bool {
			switch name {
			case countClaims, corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
				return true
			}
			return strings.HasSuffix(string(name), storageClassClaims) || strings.HasSuffix(string(name), storageClassStorage)
		}),
		inScope: claimInScope,
		usage: func(object runtime.Object) (corev1.ResourceList, error) {
			claim, err := as[*corev1.PersistentVolumeClaim](object)
			if err != nil {
				return nil, err
			}
			return claimUsage(claim), nil
		},
		frees: onUpdate(func(before, after *corev1.PersistentVolumeClaim) bool {
			return !slices.Equal(attributesClasses(before), attributesClasses(after)) || !quota.Equals(claimUsage(before), claimUsage(after))
		}),
		grows: onUpdate(func(before, after *corev1.PersistentVolumeClaim) bool {
			return !quota.Equals(claimUsage(before), claimUsage(after))
		}),
	}
}

func claimUsage(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	used := corev1.ResourceList{countClaims: one, corev1.ResourcePersistentVolumeClaims: one}
	class := volume.GetPersistentVolumeClaimClass(claim)
	if class != "" {
		used[corev1.ResourceName(class+storageClassClaims)] = one
	}
	if storage, ok := storageOf(claim); ok {
		used[corev1.ResourceRequestsStorage] = storage
		if class != "" {
			used[corev1.ResourceName(class+storageClassStorage)] = storage
		}
	}
	return used
}

// storageOf a claim in whole bytes, as a status with fractions would be
// refused. More may be allocated than is requested, while it is made larger.
func storageOf(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	storage, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated, found := claim.Status.AllocatedResources[corev1.ResourceStorage]; found && (!ok || allocated.Cmp(storage) > 0) {
		storage, ok = allocated, true
	}
	storage = storage.DeepCopy()
	storage.RoundUp(0)
	return storage, ok
}

// attributesClasses are the VolumeAttributesClasses that a claim refers to, in order and once each.
func attributesClasses(claim *corev1.PersistentVolumeClaim) []string {
	var classes []string
	add := func(class *string) {
		if class != nil && *class != "" {
			classes = append(classes, *class)
		}
	}
	add(claim.Spec.VolumeAttributesClassName)
	add(claim.Status.CurrentVolumeAttributesClassName)
	if status := claim.Status.ModifyVolumeStatus; status != nil {
		add(&status.TargetVolumeAttributesClassName)
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}
