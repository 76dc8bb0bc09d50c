package schema

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GarbageCollectorController configures garbage-collector-controller, which
// deletes objects whose owners are gone. Workers is per queue, of which there
// are two. It must be on exactly when the API server's garbage collection is.
type GarbageCollectorController struct {
	ControllerSettings `json:",inline"`
	// IgnoredResources are the resources that are not watched. Default: events in both their groups.
	IgnoredResources []GroupResource `json:"ignoredResources"`
}

// GroupResource names a resource in all its versions.
type GroupResource struct {
	// Group is empty for the core group.
	Group string `json:"group" check:"format=dnsSubdomainOrEmpty"`
	// Resource in plural, such as events.
	Resource string `json:"resource" check:"format=dnsSubdomain"`
}

// GarbageCollectorControllerSection describes GarbageCollectorController.
func GarbageCollectorControllerSection() SectionType {
	return SectionType{
		Name:    "garbage-collector-controller",
		Aliases: []string{"garbagecollector"},
		New: func() Section {
			return &GarbageCollectorController{
				ControllerSettings: enabledByDefault(20),
				IgnoredResources: []GroupResource{
					{Group: "", Resource: "events"},
					{Group: "events.k8s.io", Resource: "events"},
				},
			}
		},
	}
}

// NamespaceController configures namespace-controller, which empties and removes
// namespaces that are being deleted.
type NamespaceController struct {
	ControllerSettings `json:",inline"`
	// SyncPeriod is the time between two looks at every namespace; 0 turns them off. Default: 5m.
	SyncPeriod metav1.Duration `json:"syncPeriod" check:"min=0s,max=24h"`
	// DeletionGracePeriod is how long a namespace stays after its deletion was seen, so
	// that objects whose creation was admitted before are found and deleted too. What it
	// holds is deleted at once. Default: 5s.
	DeletionGracePeriod metav1.Duration `json:"deletionGracePeriod" check:"min=0s,max=10m"`
}

// NamespaceControllerSection describes NamespaceController.
func NamespaceControllerSection() SectionType {
	return SectionType{
		Name:    "namespace-controller",
		Aliases: []string{"namespace"},
		New: func() Section {
			return &NamespaceController{
				ControllerSettings:  enabledByDefault(10),
				SyncPeriod:          duration(5 * time.Minute),
				DeletionGracePeriod: duration(5 * time.Second),
			}
		},
	}
}

// PodGarbageCollectorController configures pod-garbage-collector-controller,
// which deletes orphaned and superfluous finished pods.
type PodGarbageCollectorController struct {
	ControllerSettings `json:",inline"`
	// TerminatedPodThreshold is how many finished pods may exist before the oldest
	// are deleted; 0 turns only that off. Default: 12500.
	TerminatedPodThreshold int `json:"terminatedPodThreshold" check:"min=0,max=100000000"`
}

// PodGarbageCollectorControllerSection describes PodGarbageCollectorController.
func PodGarbageCollectorControllerSection() SectionType {
	return SectionType{
		Name:    "pod-garbage-collector-controller",
		Aliases: []string{"podgc"},
		New: func() Section {
			return &PodGarbageCollectorController{ControllerSettings: enabledByDefault(1), TerminatedPodThreshold: 12500}
		},
	}
}

// ResourceQuotaController configures resourcequota-controller, which counts what
// ResourceQuotas limit. Workers is per queue, of which there are two.
type ResourceQuotaController struct {
	ControllerSettings `json:",inline"`
	// SyncPeriod is the time between two full recounts; 0 turns them off. Default: 5m.
	SyncPeriod metav1.Duration `json:"syncPeriod" check:"min=0s,max=24h"`
}

// ResourceQuotaControllerSection describes ResourceQuotaController.
func ResourceQuotaControllerSection() SectionType {
	return SectionType{
		Name:    "resourcequota-controller",
		Aliases: []string{"resourcequota"},
		New: func() Section {
			return &ResourceQuotaController{ControllerSettings: enabledByDefault(5), SyncPeriod: duration(5 * time.Minute)}
		},
	}
}

// StorageVersionGarbageCollectorController configures
// storageversion-garbage-collector-controller, which removes the records of API
// servers that are gone.
type StorageVersionGarbageCollectorController struct {
	ControllerSettings `json:",inline"`
}

// StorageVersionGarbageCollectorControllerSection describes StorageVersionGarbageCollectorController.
func StorageVersionGarbageCollectorControllerSection() SectionType {
	return SectionType{
		Name:    "storageversion-garbage-collector-controller",
		Aliases: []string{"storage-version-gc"},
		New: func() Section {
			return &StorageVersionGarbageCollectorController{ControllerSettings: enabledByDefault(1)}
		},
	}
}

// StorageVersionMigratorController configures storage-version-migrator-controller,
// which rewrites stored objects in their present storage version.
type StorageVersionMigratorController struct {
	ControllerSettings `json:",inline"`
}

// StorageVersionMigratorControllerSection describes StorageVersionMigratorController.
func StorageVersionMigratorControllerSection() SectionType {
	return SectionType{
		Name:    "storage-version-migrator-controller",
		Aliases: []string{"svm"},
		New:     func() Section { return &StorageVersionMigratorController{ControllerSettings: enabledByDefault(5)} },
	}
}

// ValidatingAdmissionPolicyStatusController configures
// validatingadmissionpolicy-status-controller, which type-checks policies.
type ValidatingAdmissionPolicyStatusController struct {
	ControllerSettings `json:",inline"`
}

// ValidatingAdmissionPolicyStatusControllerSection describes ValidatingAdmissionPolicyStatusController.
func ValidatingAdmissionPolicyStatusControllerSection() SectionType {
	return SectionType{
		Name: "validatingadmissionpolicy-status-controller",
		New: func() Section {
			return &ValidatingAdmissionPolicyStatusController{ControllerSettings: enabledByDefault(5)}
		},
	}
}
