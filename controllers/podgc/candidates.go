package podgc

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/ptr"
)

// byCandidacy is an index of the pods that a pass has to look at. Most pods are not in it.
const byCandidacy = "podgc"

// Values of byCandidacy.
const (
	finishedPods    = "finished"
	unscheduledPods = "terminating, unscheduled"
	boundPods       = "terminating, bound to a node"
)

// candidates are the indexers that candidatesOf needs, for the store of pods.
func candidates() cache.Indexers {
	return cache.Indexers{byCandidacy: func(obj any) ([]string, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("index what pods may be deleted for: got a %T, want a pod", obj)
		}
		var values []string
		if finished(pod) {
			values = append(values, finishedPods)
		}
		switch {
		case pod.DeletionTimestamp == nil:
		case pod.Spec.NodeName == "":
			values = append(values, unscheduledPods)
		default:
			values = append(values, boundPods)
		}
		return values, nil
	}}
}

// candidatesOf returns the pods under a value of byCandidacy, in a slice of its
// own. The pods must not be changed.
func candidatesOf(pods cache.Indexer, value string) ([]*v1.Pod, error) {
	objects, err := pods.ByIndex(byCandidacy, value)
	if err != nil {
		return nil, fmt.Errorf("list pods that are %s: %w", value, err)
	}
	found := make([]*v1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			found = append(found, pod)
		}
	}
	return found, nil
}

// finished tells whether pod counts for the threshold. One without a phase does.
func finished(pod *v1.Pod) bool {
	switch pod.Status.Phase {
	case v1.PodPending, v1.PodRunning, v1.PodUnknown:
		return false
	default:
		return true
	}
}

// ended tells whether pod has an outcome that must not be overwritten.
func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// held tells whether pod is as deleted as it can be: the API server removes it
// with its last finalizer, and until then another deletion would change nothing.
func held(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, -1) == 0 && len(pod.Finalizers) > 0
}

// settled tells whether nothing is left to do about a pod that is to go.
func settled(pod *v1.Pod) bool { return ended(pod) && held(pod) }

// firstToGo is the order in which finished pods are deleted: evicted ones, then by age.
func firstToGo(a, b *v1.Pod) int {
	if x, y := evicted(a), evicted(b); x != y {
		if x {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
		strings.Compare(a.Namespace, b.Namespace),
	)
}

func evicted(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted"
}

// outOfService tells whether node is not ready and has the taint that says that
// it will not come back, with whatever value and effect.
func outOfService(node *v1.Node) bool {
	if _, ready := nodeutil.GetNodeCondition(&node.Status, v1.NodeReady); ready != nil && ready.Status == v1.ConditionTrue {
		return false
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == v1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}
