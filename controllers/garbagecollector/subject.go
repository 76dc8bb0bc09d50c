package garbagecollector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// subject is an object that may have to be written, at one of its versions.
type subject struct {
	identity
	resource        apischema.GroupVersionResource
	resourceVersion string
	owners          []metav1.OwnerReference
	finalizers      []string
	deleting        bool
}

func subjectOf(m metav1.Object, i identity, resource apischema.GroupVersionResource) *subject {
	return &subject{
		identity:        i,
		resource:        resource,
		resourceVersion: m.GetResourceVersion(),
		owners:          m.GetOwnerReferences(),
		finalizers:      m.GetFinalizers(),
		deleting:        m.GetDeletionTimestamp() != nil,
	}
}

func (s *subject) has(finalizer string) bool { return slices.Contains(s.finalizers, finalizer) }

// policy that a deletion keeps: the one whose finalizer is there already.
func (s *subject) policy() metav1.DeletionPropagation {
	switch {
	case s.has(metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case s.has(metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}
