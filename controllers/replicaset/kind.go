package replicaset

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an API object that keeps a number of like pods.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind is what the engine has to know of an API type. Its methods do not change
// the objects that they are given, and may be called from several goroutines.
type Kind[T Object] interface {
	GroupVersionKind() apischema.GroupVersionKind
	// Selector of the pods. It is labels.Nothing if there is none.
	Selector(T) (labels.Selector, error)
	Spec(T) Spec
	// Status as it is stored.
	Status(T) Status
	// Get reads an object from the API server.
	Get(ctx context.Context, namespace, name string) (T, error)
	// UpdateStatus writes the status of the object, with its resourceVersion as
	// precondition, and returns the answer. Conditions that Status does not
	// know stay as they are.
	UpdateStatus(ctx context.Context, object T, status Status) (T, error)
}

// Spec says which pods there should be.
type Spec struct {
	Replicas        int32
	MinReadySeconds int32
	Template        *v1.PodTemplateSpec
}

// Status tells which pods there are.
type Status struct {
	// Replicas are all active pods. Those with all labels of the template, the
	// ready ones and the available ones are among them.
	Replicas, FullyLabeled, Ready, Available int32
	// Terminating pods, which are not among Replicas; nil if they are not counted.
	Terminating *int32
	// ObservedGeneration of the object that was acted on.
	ObservedGeneration int64
	// Failure is the condition ReplicaFailure, nil if there is none.
	Failure *Failure
}

// Failure says why pods could not be created or deleted.
type Failure struct {
	Status             v1.ConditionStatus
	LastTransitionTime metav1.Time
	Reason, Message    string
}
