package legacytokencleaner

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// references to Secrets from Pods, for one pass. Pods of a namespace are looked
// at once, when a Secret of it is asked for.
type references struct {
	pods        corelisters.PodLister
	byNamespace map[string]sets.Set[string]
}

// to tells whether a Pod refers to secret, one that has ended too.
func (r *references) to(secret *corev1.Secret) (bool, error) {
	if names, ok := r.byNamespace[secret.Namespace]; ok {
		return names.Has(secret.Name), nil
	}
	pods, err := r.pods.Pods(secret.Namespace).List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list pods of namespace %s: %w", secret.Namespace, err)
	}
	names := sets.New[string]()
	for _, pod := range pods {
		visitSecrets(&pod.Spec, func(name string) { names.Insert(name) })
	}
	if r.byNamespace == nil {
		r.byNamespace = map[string]sets.Set[string]{}
	}
	r.byNamespace[secret.Namespace] = names
	return names.Has(secret.Name), nil
}

// visitSecrets calls visit with the names of all Secrets that a Pod refers to.
// Names may come twice, and empty.
func visitSecrets(spec *corev1.PodSpec, visit func(name string)) {
	for _, reference := range spec.ImagePullSecrets {
		visit(reference.Name)
	}
	for i := range spec.InitContainers {
		visitEnvironment(spec.InitContainers[i].EnvFrom, spec.InitContainers[i].Env, visit)
	}
	for i := range spec.Containers {
		visitEnvironment(spec.Containers[i].EnvFrom, spec.Containers[i].Env, visit)
	}
	for i := range spec.EphemeralContainers {
		visitEnvironment(spec.EphemeralContainers[i].EnvFrom, spec.EphemeralContainers[i].Env, visit)
	}
	for i := range spec.Volumes {
		visitVolume(&spec.Volumes[i].VolumeSource, visit)
	}
}

func visitEnvironment(from []corev1.EnvFromSource, variables []corev1.EnvVar, visit func(name string)) {
	for _, source := range from {
		if source.SecretRef != nil {
			visit(source.SecretRef.Name)
		}
	}
	for i := range variables {
		if source := variables[i].ValueFrom; source != nil && source.SecretKeyRef != nil {
			visit(source.SecretKeyRef.Name)
		}
	}
}

func visitVolume(volume *corev1.VolumeSource, visit func(name string)) {
	local := func(reference *corev1.LocalObjectReference) {
		if reference != nil {
			visit(reference.Name)
		}
	}
	switch {
	case volume.Secret != nil:
		visit(volume.Secret.SecretName)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				visit(source.Secret.Name)
			}
		}
	case volume.CSI != nil:
		local(volume.CSI.NodePublishSecretRef)
	case volume.AzureFile != nil:
		visit(volume.AzureFile.SecretName)
	case volume.CephFS != nil:
		local(volume.CephFS.SecretRef)
	case volume.Cinder != nil:
		local(volume.Cinder.SecretRef)
	case volume.FlexVolume != nil:
		local(volume.FlexVolume.SecretRef)
	case volume.RBD != nil:
		local(volume.RBD.SecretRef)
	case volume.ScaleIO != nil:
		local(volume.ScaleIO.SecretRef)
	case volume.ISCSI != nil:
		local(volume.ISCSI.SecretRef)
	case volume.StorageOS != nil:
		local(volume.StorageOS.SecretRef)
	}
}
