package ownerindex

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/cache"
)

// BySelector is the index of owners by a label that their selector demands.
const BySelector = "selector"

// Selectors are the indexers that Matching needs, for a store of owners of
// type T. An owner whose selector is empty, invalid or matches nothing is not
// in the index: it adopts nobody.
func Selectors[T metav1.Object](selectorOf func(T) (labels.Selector, error)) cache.Indexers {
	return cache.Indexers{BySelector: func(obj any) ([]string, error) {
		owner, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("index by selector: got a %T, want a %T", obj, owner)
		}
		selector, err := selectorOf(owner)
		if err != nil {
			return nil, nil //nolint:nilerr // it would fail all users of the informer; the owner's reconcile reports it
		}
		return selectorValues(owner.GetNamespace(), selector), nil
	}}
}

// Matching returns the owners in obj's namespace whose selector matches obj's
// labels; none if obj has no labels. Only owners that demand one of these
// labels are looked at, and those that demand no certain label. The objects
// must not be changed.
func Matching[T metav1.Object](owners cache.Indexer, selectorOf func(T) (labels.Selector, error), obj metav1.Object) ([]T, error) {
	set := labels.Set(obj.GetLabels())
	if len(set) == 0 {
		return nil, nil
	}
	values := make([]string, 0, len(set)+1)
	for key, value := range set {
		values = append(values, labelValue(obj.GetNamespace(), key, value))
	}
	values = append(values, anyLabelValue(obj.GetNamespace()))

	var matching []T
	for _, value := range values {
		candidates, err := lookup[T](owners, BySelector, value)
		if err != nil {
			return nil, err
		}
		for _, owner := range candidates {
			if selector, err := selectorOf(owner); err == nil && selector.Matches(set) {
				matching = append(matching, owner)
			}
		}
	}
	return matching, nil
}

// selectorValues returns the index values of an owner: one for each value that
// the most telling requirement allows, so that an object that matches is under
// exactly one of them.
func selectorValues(namespace string, selector labels.Selector) []string {
	requirements, selectable := selector.Requirements()
	if !selectable || selector.Empty() {
		return nil
	}
	var best []string
	for _, requirement := range requirements {
		switch requirement.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
		default:
			continue
		}
		// In order, since a store asks twice and must get the same answer.
		var values []string
		for _, value := range requirement.Values().List() {
			values = append(values, labelValue(namespace, requirement.Key(), value))
		}
		if best == nil || compareTelling(values, best) > 0 {
			best = values
		}
	}
	if best == nil {
		return []string{anyLabelValue(namespace)}
	}
	return best
}

// compareTelling prefers few values to many, and long ones to short ones: long
// values tend to be hashes and UIDs, which few objects share.
func compareTelling(a, b []string) int {
	if c := cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(len(a[0]), len(b[0]))); c != 0 {
		return c
	}
	return slices.Compare(a, b)
}

func labelValue(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// anyLabelValue is no label's: keys are not empty.
func anyLabelValue(namespace string) string { return namespace + "/" }
