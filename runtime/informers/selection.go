package informers

import "k8s.io/apimachinery/pkg/runtime/schema"

// Selection limits an informer to some objects of its resource. The process
// then neither needs the right to see the others nor keeps them.
type Selection struct {
	// Namespace of the objects. Default: all.
	Namespace string
	// FieldSelector that the resource supports, such as type=kubernetes.io/tls. Default: all.
	FieldSelector string
}

// SelectedInformer is Informer for some objects of the resource. What its user
// writes to it must be among them: an event shows when the store has it.
func (l *Lease) SelectedInformer(gvr schema.GroupVersionResource, s Selection) (*Informer, error) {
	return l.lease(key{gvr: gvr, selection: s})
}

// String is empty for all objects.
func (s Selection) String() string {
	switch {
	case s.Namespace == "":
		return s.FieldSelector
	case s.FieldSelector == "":
		return "in " + s.Namespace
	default:
		return "in " + s.Namespace + ", " + s.FieldSelector
	}
}
