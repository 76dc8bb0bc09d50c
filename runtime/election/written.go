package election

import (
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// writtenAnnotation of a released Lease holds the last writes of the leader
// that released it.
const writtenAnnotation = "config.wheelhouse.dev/written"

// maxWritten bytes of the annotation's value, of the 256 KiB that all
// annotations of an object may have; enough for a thousand resources.
const maxWritten = 64 << 10

// written is the value of the annotation. Other holders, such as a
// kube-controller-manager, keep the annotation when they take the Lease; it
// counts only while the Lease is in the state in which it was left.
type written struct {
	// Transitions of the Lease when it was released.
	Transitions int32 `json:"transitions"`
	// Written is the highest resourceVersion by resource, as deployments.apps.
	Written map[string]string `json:"written"`
}

// annotate leaves marks in a Lease that is being released. Marks that are too
// many are left out altogether, since a part would be taken for the whole.
func annotate(lease *coordinationv1.Lease, marks map[apischema.GroupResource]string) error {
	value := written{Transitions: transitions(lease), Written: make(map[string]string, len(marks))}
	for resource, version := range marks {
		value.Written[resource.String()] = version
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the last writes: %w", err)
	}
	delete(lease.Annotations, writtenAnnotation)
	if len(encoded) > maxWritten {
		return nil
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[writtenAnnotation] = string(encoded)
	return nil
}

// handedOver returns the marks in a Lease that was released with them; false
// when it was not, or when somebody led since.
func handedOver(lease *coordinationv1.Lease) (map[apischema.GroupResource]string, bool) {
	value, ok := lease.Annotations[writtenAnnotation]
	if !ok || holder(lease) != "" {
		return nil, false
	}
	var left written
	if err := json.Unmarshal([]byte(value), &left); err != nil || left.Written == nil || left.Transitions != transitions(lease) {
		return nil, false
	}
	marks := make(map[apischema.GroupResource]string, len(left.Written))
	for resource, version := range left.Written {
		marks[apischema.ParseGroupResource(resource)] = version
	}
	return marks, true
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func transitions(lease *coordinationv1.Lease) int32 {
	if lease.Spec.LeaseTransitions == nil {
		return 0
	}
	return *lease.Spec.LeaseTransitions
}
