package statefulset

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

// version is a pod template of a set with the name of its revision.
type version struct {
	name     string
	template *v1.PodTemplateSpec
}

// comesBack tells whether a missing pod is made as the current revision has it,
// not the update revision, since a rolling update has not come to it yet.
// Without a partition, the update of an ordered set has not come to the lowest
// ones, as many as there are pods of the current revision; in a parallel one
// that number says nothing about which, and a pod that came back as it was
// would be replaced at once.
func comesBack(set *appsv1.StatefulSet, current, ordinal int) bool {
	strategy := set.Spec.UpdateStrategy
	if strategy.RollingUpdate != nil {
		return ordinal < partitionOf(set)
	}
	return strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && isMonotonic(set) &&
		ordinal < ordinalsOf(set).first+current
}

// newPod returns the pod of set with ordinal.
func newPod(set *appsv1.StatefulSet, ordinal int, version version) (*v1.Pod, error) {
	pod, err := podcontrol.FromTemplate(version.template, set, metav1.NewControllerRef(set, controllerKind))
	if err != nil {
		return nil, err
	}
	pod.Name = nameOf(set.Name, ordinal)
	setIdentity(pod, ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = version.name
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = set.Spec.ServiceName
	setStorage(set, pod, ordinal)
	return pod, nil
}

// hasIdentity tells whether pod says by its label which pod of its set it is.
func hasIdentity(pod *v1.Pod) bool { return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name }

func setIdentity(pod *v1.Pod, ordinal int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
}

// hasStorage tells whether pod has a volume for each claim template, with the claim of its ordinal.
func hasStorage(set *appsv1.StatefulSet, pod *v1.Pod, ordinal int) bool {
	claims := make(map[string]string, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		if source := pod.Spec.Volumes[i].PersistentVolumeClaim; source != nil {
			claims[pod.Spec.Volumes[i].Name] = source.ClaimName
		}
	}
	for i := range set.Spec.VolumeClaimTemplates {
		template := set.Spec.VolumeClaimTemplates[i].Name
		if claims[template] != claimName(template, set.Name, ordinal) {
			return false
		}
	}
	return true
}

// setStorage gives pod the volumes of its claims, in the order of their
// templates, before those of its own that have other names.
func setStorage(set *appsv1.StatefulSet, pod *v1.Pod, ordinal int) {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return
	}
	volumes := make([]v1.Volume, 0, len(set.Spec.VolumeClaimTemplates)+len(pod.Spec.Volumes))
	claimed := map[string]bool{}
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		claimed[name] = true
		volumes = append(volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(name, set.Name, ordinal)},
		}})
	}
	for i := range pod.Spec.Volumes {
		if !claimed[pod.Spec.Volumes[i].Name] {
			volumes = append(volumes, pod.Spec.Volumes[i])
		}
	}
	pod.Spec.Volumes = volumes
}

// revisionOf is the name of the revision that pod was made by.
func revisionOf(pod *v1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }
