// Package servicepods tells which pods belong to a Service, which Services a
// pod belongs to, and which changes of a pod matter to them. Both ways are
// looked up in indexes of the informers' stores: nothing scans a namespace.
package servicepods

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

// ByLabel is the index of pods by each of their labels.
const ByLabel = "label"

// PodIndexers are what Of needs in the store of pods.
func PodIndexers() cache.Indexers {
	return cache.Indexers{ByLabel: func(obj any) ([]string, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("index by label: got a %T, want a pod", obj)
		}
		values := make([]string, 0, len(pod.Labels))
		for key, value := range pod.Labels {
			values = append(values, labelValue(pod.Namespace, key, value))
		}
		return values, nil
	}}
}

// ServiceIndexers are what Services and Handler need in the store of Services.
func ServiceIndexers() cache.Indexers { return ownerindex.Selectors(selectorOf) }

func labelValue(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// Selects tells whether endpoints of the Service follow its selector. Without a
// selector somebody else looks after them, and an external name has none.
func Selects(service *v1.Service) bool {
	return len(service.Spec.Selector) > 0 && service.Spec.Type != v1.ServiceTypeExternalName
}

func selectorOf(service *v1.Service) (labels.Selector, error) {
	if !Selects(service) {
		return labels.Nothing(), nil
	}
	// The API server has validated it.
	return labels.SelectorFromValidatedSet(service.Spec.Selector), nil
}

// Of returns the pods that the Service selects, in no order, whatever their
// state; none unless it Selects. They must not be changed.
func Of(pods cache.Indexer, service *v1.Service) ([]*v1.Pod, error) {
	if !Selects(service) {
		return nil, nil
	}
	// Of the labels that a pod must have, the one that the fewest have.
	rarest, fewest := "", -1
	for key, value := range service.Spec.Selector {
		indexed := labelValue(service.Namespace, key, value)
		if len(service.Spec.Selector) == 1 {
			rarest = indexed
			break
		}
		keys, err := pods.IndexKeys(ByLabel, indexed)
		if err != nil {
			return nil, fmt.Errorf("count pods with label %q: %w", indexed, err)
		}
		if fewest < 0 || len(keys) < fewest {
			rarest, fewest = indexed, len(keys)
		}
	}
	objs, err := pods.ByIndex(ByLabel, rarest)
	if err != nil {
		return nil, fmt.Errorf("list pods with label %q: %w", rarest, err)
	}
	selector := labels.SelectorFromValidatedSet(service.Spec.Selector)
	selected := make([]*v1.Pod, 0, len(objs))
	for _, obj := range objs {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("list pods with label %q: store has a %T", rarest, obj)
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			selected = append(selected, pod)
		}
	}
	return selected, nil
}

// Services returns the Services whose endpoints the pod may be among. They must
// not be changed.
func Services(services cache.Indexer, pod *v1.Pod) ([]*v1.Service, error) {
	matching, err := ownerindex.Matching(services, selectorOf, metav1.Object(pod))
	if err != nil {
		return nil, fmt.Errorf("look up the services of pod %s: %w", cache.MetaObjectToName(pod), err)
	}
	return matching, nil
}
