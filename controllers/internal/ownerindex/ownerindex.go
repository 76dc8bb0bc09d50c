// Package ownerindex finds the dependants of an owner and the owners of a
// dependant through indexes of the informers' stores, so that neither takes a
// scan of a namespace.
package ownerindex

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	// ByController is the index of dependants by the owner that controls them.
	// A dependant without a controller, an orphan, is under its namespace.
	ByController = "controller"
	// ByNode is the index of pods by spec.nodeName; unscheduled pods are not in it.
	ByNode = "spec.nodeName"
)

// Owner names an object that may control others.
type Owner struct {
	Kind, Namespace, Name string
	UID                   types.UID
}

// OwnerOf returns obj, which is of the given kind, as an owner.
func OwnerOf(kind string, obj metav1.Object) Owner {
	return Owner{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
}

// ControllerOf returns the owner that controls obj, and false if none does.
func ControllerOf(obj metav1.Object) (Owner, bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return Owner{}, false
	}
	return Owner{Kind: ref.Kind, Namespace: obj.GetNamespace(), Name: ref.Name, UID: ref.UID}, true
}

// indexValue has no group: the UID makes it unique.
func (o Owner) indexValue() string {
	return o.Namespace + "/" + o.Kind + "/" + o.Name + "/" + string(o.UID)
}

// Controllers are the indexers that Owned and Orphans need, for the store of
// any kind of dependant.
func Controllers() cache.Indexers {
	return cache.Indexers{ByController: func(obj any) ([]string, error) {
		object, err := meta.Accessor(obj)
		if err != nil {
			return nil, fmt.Errorf("index by controller: %w", err)
		}
		if owner, ok := ControllerOf(object); ok {
			return []string{owner.indexValue()}, nil
		}
		return []string{object.GetNamespace()}, nil
	}}
}

// Nodes are the indexers that OnNode needs, for the store of pods.
func Nodes() cache.Indexers {
	return cache.Indexers{ByNode: func(obj any) ([]string, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("index by node: got a %T, want a pod", obj)
		}
		if pod.Spec.NodeName == "" {
			return nil, nil
		}
		return []string{pod.Spec.NodeName}, nil
	}}
}

// Owned returns the objects that owner controls, finished and deleted ones
// included. The objects must not be changed.
func Owned[T any](dependants cache.Indexer, owner Owner) ([]T, error) {
	if owner.Kind == "" || owner.Namespace == "" || owner.Name == "" || owner.UID == "" {
		return nil, fmt.Errorf("list dependants: owner %+v needs kind, namespace, name and UID", owner)
	}
	return lookup[T](dependants, ByController, owner.indexValue())
}

// Orphans returns the objects of namespace that nothing controls. The objects
// must not be changed.
func Orphans[T any](dependants cache.Indexer, namespace string) ([]T, error) {
	if namespace == "" {
		return nil, fmt.Errorf("list orphans: no namespace")
	}
	return lookup[T](dependants, ByController, namespace)
}

// Candidates returns what owner may claim: the objects that it controls and
// the orphans of its namespace. The objects must not be changed.
func Candidates[T any](dependants cache.Indexer, owner Owner) ([]T, error) {
	owned, err := Owned[T](dependants, owner)
	if err != nil {
		return nil, err
	}
	orphans, err := Orphans[T](dependants, owner.Namespace)
	if err != nil {
		return nil, err
	}
	return append(owned, orphans...), nil
}

// OnNode returns the pods that are bound to node. They must not be changed.
func OnNode(pods cache.Indexer, node string) ([]*v1.Pod, error) {
	return lookup[*v1.Pod](pods, ByNode, node)
}

// Resolve returns the object that owner names, if it is of kind and still has
// that UID. The object must not be changed.
func Resolve[T metav1.Object](owners cache.Indexer, kind string, owner Owner) (T, bool) {
	var none T
	if owner.Kind != kind {
		return none, false
	}
	obj, exists, err := owners.GetByKey(cache.NewObjectName(owner.Namespace, owner.Name).String())
	if err != nil || !exists { // a store in memory returns no error
		return none, false
	}
	object, ok := obj.(T)
	if !ok || object.GetUID() != owner.UID {
		return none, false
	}
	return object, true
}

func lookup[T any](store cache.Indexer, index, value string) ([]T, error) {
	objs, err := store.ByIndex(index, value)
	if err != nil {
		return nil, fmt.Errorf("look up %q: %w", value, err)
	}
	found := make([]T, 0, len(objs))
	for _, obj := range objs {
		object, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("look up %q in index %s: store has a %T, want a %T", value, index, obj, object)
		}
		found = append(found, object)
	}
	return found, nil
}
