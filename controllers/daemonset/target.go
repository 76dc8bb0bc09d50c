package daemonset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

// targetNode is the node that a pod is on or is meant for, "" if the pod does
// not say: then it is no pod that this controller made.
func targetNode(pod *v1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == v1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// byNode groups pods by the node that they are meant for, those that are
// preferred first. Finished pods that are being deleted are left out: their
// place is free. pods is not changed, and must not be as long as the result is used.
func byNode(pods []*v1.Pod) map[string][]*v1.Pod {
	nodes := make(map[string][]*v1.Pod, len(pods))
	for i, pod := range pods {
		if pod.DeletionTimestamp != nil && availability.IsTerminal(pod) {
			continue
		}
		node := targetNode(pod)
		switch onNode := nodes[node]; {
		case node == "":
		case onNode == nil:
			nodes[node] = pods[i : i+1 : i+1] // without memory of its own, as most nodes have one pod
		default:
			nodes[node] = append(onNode, pod)
		}
	}
	for _, onNode := range nodes {
		if len(onNode) > 1 {
			slices.SortFunc(onNode, comparePreference)
		}
	}
	return nodes
}

// comparePreference puts a bound pod before one that is not, then an older one
// before a younger one.
func comparePreference(a, b *v1.Pod) int {
	bound := func(pod *v1.Pod) int {
		if pod.Spec.NodeName != "" {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(bound(a), bound(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// version tells which pods are of the current template.
type version struct {
	// hash of the revision of the current template.
	hash string
	// generation of the template, "" if it is not known. It saves pods from a
	// roll-out when a release of the API writes the same template differently.
	generation string
}

func versionOf(ds *appsv1.DaemonSet, hash string) version {
	generation := ds.Annotations[appsv1.DeprecatedTemplateGeneration]
	if _, err := strconv.ParseInt(generation, 10, 64); err != nil {
		generation = ""
	}
	return version{hash: hash, generation: generation}
}

func (v version) isCurrent(pod *v1.Pod) bool {
	return v.hash != "" && pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == v.hash ||
		v.generation != "" && pod.Labels[extensionsv1beta1.DaemonSetTemplateGenerationKey] == v.generation
}

// podFor returns a function that makes a new pod of ds for a node. The pods
// share what is the same for all nodes.
func podFor(ds *appsv1.DaemonSet, v version) (func(node string) *v1.Pod, error) {
	// Its pods would be released at once, and made again without end. The API
	// server stores no such DaemonSet, but may have got one with a restored store.
	if selector, err := selectorOf(ds); err != nil || !selector.Matches(labels.Set(ds.Spec.Template.Labels)) {
		return nil, errors.Join(fmt.Errorf("make a pod of daemonset %s/%s: selector does not match the labels of the template",
			ds.Namespace, ds.Name), err)
	}
	common, err := podcontrol.FromTemplate(&ds.Spec.Template, ds, metav1.NewControllerRef(ds, controllerKind))
	if err != nil {
		return nil, fmt.Errorf("make a pod of daemonset %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	common.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = v.hash
	if v.generation != "" {
		common.Labels[extensionsv1beta1.DaemonSetTemplateGenerationKey] = v.generation
	}
	common.Spec.Tolerations = withDaemonTolerations(common.Spec.Tolerations, common.Spec.HostNetwork)
	return func(node string) *v1.Pod {
		pod := *common
		pod.Spec.Affinity = onlyOn(node, common.Spec.Affinity)
		return &pod
	}, nil
}

// onlyOn returns affinity with the node in the place of its required node
// affinity, which the node has been found to match. It does not change affinity.
func onlyOn(node string, affinity *v1.Affinity) *v1.Affinity {
	changed := v1.Affinity{}
	if affinity != nil {
		changed = *affinity
	}
	nodeAffinity := v1.NodeAffinity{}
	if changed.NodeAffinity != nil {
		nodeAffinity = *changed.NodeAffinity
	}
	nodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node},
			}},
		}},
	}
	changed.NodeAffinity = &nodeAffinity
	return &changed
}
