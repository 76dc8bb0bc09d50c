package garbagecollector

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// patch of an object's metadata. uid or resourceVersion is its precondition.
type patch struct {
	Metadata map[string]any `json:"metadata"`
}

func (p patch) bytes() ([]byte, error) { return json.Marshal(p) }

// withoutOwners is a strategic merge patch that removes references to owners.
func withoutOwners(s *subject, owners []types.UID) patch {
	directives := make([]map[string]any, 0, len(owners))
	for _, uid := range owners {
		directives = append(directives, map[string]any{"$patch": "delete", "uid": uid})
	}
	return patch{map[string]any{"uid": s.uid, "ownerReferences": directives}}
}

// keepingOwners is a JSON merge patch that leaves only the references that keep accepts.
func keepingOwners(s *subject, keep func(*metav1.OwnerReference) bool) patch {
	kept := []metav1.OwnerReference{}
	for i := range s.owners {
		if keep(&s.owners[i]) {
			kept = append(kept, s.owners[i])
		}
	}
	return patch{map[string]any{"resourceVersion": s.resourceVersion, "ownerReferences": kept}}
}

// unblockingOwners is a strategic merge patch by which no reference blocks its owner.
func unblockingOwners(s *subject) patch {
	var references []map[string]any
	for i := range s.owners {
		if ptr.Deref(s.owners[i].BlockOwnerDeletion, false) {
			references = append(references, map[string]any{"uid": s.owners[i].UID, "blockOwnerDeletion": false})
		}
	}
	return patch{map[string]any{"uid": s.uid, "ownerReferences": references}}
}

// replacingBlockingOwners is the same as a JSON merge patch.
func replacingBlockingOwners(s *subject) patch {
	owners := slices.Clone(s.owners)
	for i := range owners {
		owners[i].BlockOwnerDeletion = ptr.To(false)
	}
	return patch{map[string]any{"resourceVersion": s.resourceVersion, "ownerReferences": owners}}
}

// withoutFinalizer is a JSON merge patch.
func withoutFinalizer(s *subject, finalizer string) patch {
	kept := slices.DeleteFunc(slices.Clone(s.finalizers), func(f string) bool { return f == finalizer })
	if len(kept) == 0 {
		kept = nil
	}
	return patch{map[string]any{"resourceVersion": s.resourceVersion, "finalizers": kept}}
}
