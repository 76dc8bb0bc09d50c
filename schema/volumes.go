package schema

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EphemeralVolumeController configures ephemeral-volume-controller, which
// creates the claims of generic ephemeral volumes.
type EphemeralVolumeController struct {
	ControllerSettings `json:",inline"`
}

// EphemeralVolumeControllerSection describes EphemeralVolumeController.
func EphemeralVolumeControllerSection() SectionType {
	return SectionType{
		Name:    "ephemeral-volume-controller",
		Aliases: []string{"ephemeral-volume"},
		New:     func() Section { return &EphemeralVolumeController{ControllerSettings: enabledByDefault(5)} },
	}
}

// PersistentVolumeAttachDetachController configures
// persistentvolume-attach-detach-controller, which attaches volumes to nodes.
type PersistentVolumeAttachDetachController struct {
	ControllerSettings `json:",inline"`
	// DisableReconcilerSync skips the periodic check that attached volumes still are. Default: false.
	DisableReconcilerSync bool `json:"disableReconcilerSync"`
	// ReconcilerSyncPeriod is the time between two such checks. Default: 1m.
	ReconcilerSyncPeriod metav1.Duration `json:"reconcilerSyncPeriod" check:"min=1s,max=24h"`
	// DisableForceDetachOnTimeout forbids to detach by force from an unhealthy node,
	// which otherwise happens after 6 minutes. Default: false.
	DisableForceDetachOnTimeout bool `json:"disableForceDetachOnTimeout"`
	// FlexVolumePluginDir is the directory of flex volume plugins.
	// Default: /usr/libexec/kubernetes/kubelet-plugins/volume/exec/.
	FlexVolumePluginDir string `json:"flexVolumePluginDir" check:"format=path"`
}

// PersistentVolumeAttachDetachControllerSection describes PersistentVolumeAttachDetachController.
func PersistentVolumeAttachDetachControllerSection() SectionType {
	return SectionType{
		Name:    "persistentvolume-attach-detach-controller",
		Aliases: []string{"attachdetach"},
		New: func() Section {
			return &PersistentVolumeAttachDetachController{
				ControllerSettings:   enabledByDefault(1),
				ReconcilerSyncPeriod: duration(time.Minute),
				FlexVolumePluginDir:  "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
			}
		},
	}
}

// PersistentVolumeBinderController configures persistentvolume-binder-controller,
// which binds claims to volumes, provisions, recycles and deletes volumes.
type PersistentVolumeBinderController struct {
	ControllerSettings `json:",inline"`
	// SyncPeriod is the time between two looks at every volume and claim. Default: 15s.
	SyncPeriod metav1.Duration `json:"syncPeriod" check:"min=1s,max=24h"`
	// EnableDynamicProvisioning makes volumes for claims with a storage class that no volume fits. Default: true.
	EnableDynamicProvisioning bool `json:"enableDynamicProvisioning"`
	// EnableHostPathProvisioning allows the provisioner kubernetes.io/host-path,
	// for tests on a single node. Default: false.
	EnableHostPathProvisioning bool `json:"enableHostPathProvisioning"`
	// Recycler configures the pods that scrub volumes with reclaim policy Recycle.
	Recycler Recycler `json:"recycler"`
}

// Recycler configures the pods that scrub volumes, by kind of volume.
type Recycler struct {
	// NFS configures the pods for NFS volumes.
	NFS RecyclerPod `json:"nfs"`
	// HostPath configures the pods for host path volumes, for tests on a single node.
	HostPath RecyclerPod `json:"hostPath"`
}

// RecyclerPod configures one kind of recycler pod. Times are whole seconds, as
// the pod's activeDeadlineSeconds is.
type RecyclerPod struct {
	// PodTemplateFile holds a Pod with at least one volume. Default: empty, the built-in pod.
	PodTemplateFile string `json:"podTemplateFile" check:"format=path"`
	// MinimumTimeout is the least activeDeadlineSeconds of the pod.
	MinimumTimeout metav1.Duration `json:"minimumTimeout" check:"min=1s,max=168h,wholeSeconds"`
	// TimeoutIncrement is the time added for each GiB of the volume.
	TimeoutIncrement metav1.Duration `json:"timeoutIncrement" check:"min=0s,max=168h,wholeSeconds"`
}

// PersistentVolumeBinderControllerSection describes PersistentVolumeBinderController.
func PersistentVolumeBinderControllerSection() SectionType {
	return SectionType{
		Name:    "persistentvolume-binder-controller",
		Aliases: []string{"persistentvolume-binder"},
		New: func() Section {
			return &PersistentVolumeBinderController{
				ControllerSettings:        enabledByDefault(1),
				SyncPeriod:                duration(15 * time.Second),
				EnableDynamicProvisioning: true,
				Recycler: Recycler{
					NFS: RecyclerPod{
						MinimumTimeout:   duration(5 * time.Minute),
						TimeoutIncrement: duration(30 * time.Second),
					},
					HostPath: RecyclerPod{
						MinimumTimeout:   duration(time.Minute),
						TimeoutIncrement: duration(30 * time.Second),
					},
				},
			}
		},
	}
}

// PersistentVolumeExpanderController configures persistentvolume-expander-controller,
// which grows the volumes of in-tree plugins.
type PersistentVolumeExpanderController struct {
	ControllerSettings `json:",inline"`
}

// PersistentVolumeExpanderControllerSection describes PersistentVolumeExpanderController.
func PersistentVolumeExpanderControllerSection() SectionType {
	return SectionType{
		Name:    "persistentvolume-expander-controller",
		Aliases: []string{"persistentvolume-expander"},
		New:     func() Section { return &PersistentVolumeExpanderController{ControllerSettings: enabledByDefault(10)} },
	}
}

// PersistentVolumeProtectionController configures
// persistentvolume-protection-controller, which holds volumes while they are bound.
type PersistentVolumeProtectionController struct {
	ControllerSettings `json:",inline"`
}

// PersistentVolumeProtectionControllerSection describes PersistentVolumeProtectionController.
func PersistentVolumeProtectionControllerSection() SectionType {
	return SectionType{
		Name:    "persistentvolume-protection-controller",
		Aliases: []string{"pv-protection"},
		New:     func() Section { return &PersistentVolumeProtectionController{ControllerSettings: enabledByDefault(1)} },
	}
}

// PersistentVolumeClaimProtectionController configures
// persistentvolumeclaim-protection-controller, which holds claims while pods use them.
type PersistentVolumeClaimProtectionController struct {
	ControllerSettings `json:",inline"`
}

// PersistentVolumeClaimProtectionControllerSection describes PersistentVolumeClaimProtectionController.
func PersistentVolumeClaimProtectionControllerSection() SectionType {
	return SectionType{
		Name:    "persistentvolumeclaim-protection-controller",
		Aliases: []string{"pvc-protection"},
		New: func() Section {
			return &PersistentVolumeClaimProtectionController{ControllerSettings: enabledByDefault(1)}
		},
	}
}

// SELinuxWarningController configures selinux-warning-controller, which reports
// pods that use one volume with different SELinux labels. Off by default.
type SELinuxWarningController struct {
	ControllerSettings `json:",inline"`
}

// SELinuxWarningControllerSection describes SELinuxWarningController.
func SELinuxWarningControllerSection() SectionType {
	return SectionType{
		Name: "selinux-warning-controller",
		New:  func() Section { return &SELinuxWarningController{ControllerSettings: disabledByDefault()} },
	}
}

// VolumeAttributesClassProtectionController configures
// volumeattributesclass-protection-controller, which holds classes while volumes
// or claims use them.
type VolumeAttributesClassProtectionController struct {
	ControllerSettings `json:",inline"`
}

// VolumeAttributesClassProtectionControllerSection describes VolumeAttributesClassProtectionController.
func VolumeAttributesClassProtectionControllerSection() SectionType {
	return SectionType{
		Name: "volumeattributesclass-protection-controller",
		New: func() Section {
			return &VolumeAttributesClassProtectionController{ControllerSettings: enabledByDefault(1)}
		},
	}
}
