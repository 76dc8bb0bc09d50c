package schema

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronJobController configures cronjob-controller, which creates Jobs on schedule.
type CronJobController struct {
	ControllerSettings `json:",inline"`
}

// CronJobControllerSection describes CronJobController.
func CronJobControllerSection() SectionType {
	return SectionType{
		Name:    "cronjob-controller",
		Aliases: []string{"cronjob"},
		New:     func() Section { return &CronJobController{ControllerSettings: enabledByDefault(5)} },
	}
}

// DaemonSetController configures daemonset-controller, which runs one pod of
// each DaemonSet on every matching node. As many workers again follow changes
// of nodes.
type DaemonSetController struct {
	ControllerSettings `json:",inline"`
}

// DaemonSetControllerSection describes DaemonSetController.
func DaemonSetControllerSection() SectionType {
	return SectionType{
		Name:    "daemonset-controller",
		Aliases: []string{"daemonset"},
		New:     func() Section { return &DaemonSetController{ControllerSettings: enabledByDefault(2)} },
	}
}

// DeploymentController configures deployment-controller, which rolls out the
// ReplicaSets of Deployments.
type DeploymentController struct {
	ControllerSettings `json:",inline"`
}

// DeploymentControllerSection describes DeploymentController.
func DeploymentControllerSection() SectionType {
	return SectionType{
		Name:    "deployment-controller",
		Aliases: []string{"deployment"},
		New:     func() Section { return &DeploymentController{ControllerSettings: enabledByDefault(5)} },
	}
}

// DisruptionController configures disruption-controller, which keeps the status
// of PodDisruptionBudgets.
type DisruptionController struct {
	ControllerSettings `json:",inline"`
}

// DisruptionControllerSection describes DisruptionController.
func DisruptionControllerSection() SectionType {
	return SectionType{
		Name:    "disruption-controller",
		Aliases: []string{"disruption"},
		New:     func() Section { return &DisruptionController{ControllerSettings: enabledByDefault(1)} },
	}
}

// HorizontalPodAutoscalerController configures
// horizontal-pod-autoscaler-controller, which scales workloads by metrics.
type HorizontalPodAutoscalerController struct {
	ControllerSettings `json:",inline"`
	// SyncPeriod is the time between two looks at the same HorizontalPodAutoscaler. Default: 15s.
	SyncPeriod metav1.Duration `json:"syncPeriod" check:"min=1s,max=24h"`
	// DownscaleStabilizationWindow is how far back the highest recommendation
	// holds replicas up, for objects without a window of their own. Default: 5m.
	DownscaleStabilizationWindow metav1.Duration `json:"downscaleStabilizationWindow" check:"min=0s,max=24h"`
	// Tolerance is how far the ratio of wanted to present usage may be from 1
	// before replicas change, for objects without a tolerance of their own. Default: 0.1.
	Tolerance float64 `json:"tolerance" check:"min=0,max=1000"`
	// CPUInitializationPeriod is the time after a pod's start in which its CPU samples may be skipped. Default: 5m.
	CPUInitializationPeriod metav1.Duration `json:"cpuInitializationPeriod" check:"min=0s,max=24h"`
	// InitialReadinessDelay is the time after a pod's start in which changes of
	// readiness count as initial readiness. Default: 30s.
	InitialReadinessDelay metav1.Duration `json:"initialReadinessDelay" check:"min=0s,max=24h"`
}

// HorizontalPodAutoscalerControllerSection describes HorizontalPodAutoscalerController.
func HorizontalPodAutoscalerControllerSection() SectionType {
	return SectionType{
		Name:    "horizontal-pod-autoscaler-controller",
		Aliases: []string{"horizontalpodautoscaling"},
		New: func() Section {
			return &HorizontalPodAutoscalerController{
				ControllerSettings:           enabledByDefault(5),
				SyncPeriod:                   duration(15 * time.Second),
				DownscaleStabilizationWindow: duration(5 * time.Minute),
				Tolerance:                    0.1,
				CPUInitializationPeriod:      duration(5 * time.Minute),
				InitialReadinessDelay:        duration(30 * time.Second),
			}
		},
	}
}

// JobController configures job-controller, which runs the pods of Jobs. As many
// workers again remove the finalizers of orphaned pods.
type JobController struct {
	ControllerSettings `json:",inline"`
}

// JobControllerSection describes JobController.
func JobControllerSection() SectionType {
	return SectionType{
		Name:    "job-controller",
		Aliases: []string{"job"},
		New:     func() Section { return &JobController{ControllerSettings: enabledByDefault(5)} },
	}
}

// PodGroupProtectionController configures podgroup-protection-controller, which
// holds PodGroups while pods use them.
type PodGroupProtectionController struct {
	ControllerSettings `json:",inline"`
}

// PodGroupProtectionControllerSection describes PodGroupProtectionController.
func PodGroupProtectionControllerSection() SectionType {
	return SectionType{
		Name: "podgroup-protection-controller",
		New:  func() Section { return &PodGroupProtectionController{ControllerSettings: enabledByDefault(1)} },
	}
}

// ReplicaSetController configures replicaset-controller, which keeps the number
// of pods of ReplicaSets.
type ReplicaSetController struct {
	ControllerSettings `json:",inline"`
}

// ReplicaSetControllerSection describes ReplicaSetController.
func ReplicaSetControllerSection() SectionType {
	return SectionType{
		Name:    "replicaset-controller",
		Aliases: []string{"replicaset"},
		New:     func() Section { return &ReplicaSetController{ControllerSettings: enabledByDefault(5)} },
	}
}

// ReplicationControllerController configures replicationcontroller-controller,
// which keeps the number of pods of ReplicationControllers.
type ReplicationControllerController struct {
	ControllerSettings `json:",inline"`
}

// ReplicationControllerControllerSection describes ReplicationControllerController.
func ReplicationControllerControllerSection() SectionType {
	return SectionType{
		Name:    "replicationcontroller-controller",
		Aliases: []string{"replicationcontroller"},
		New:     func() Section { return &ReplicationControllerController{ControllerSettings: enabledByDefault(5)} },
	}
}

// StatefulSetController configures statefulset-controller, which runs the pods
// and claims of StatefulSets in order.
type StatefulSetController struct {
	ControllerSettings `json:",inline"`
}

// StatefulSetControllerSection describes StatefulSetController.
func StatefulSetControllerSection() SectionType {
	return SectionType{
		Name:    "statefulset-controller",
		Aliases: []string{"statefulset"},
		New:     func() Section { return &StatefulSetController{ControllerSettings: enabledByDefault(5)} },
	}
}

// TTLAfterFinishedController configures ttl-after-finished-controller, which
// deletes finished Jobs when their ttlSecondsAfterFinished is over.
type TTLAfterFinishedController struct {
	ControllerSettings `json:",inline"`
}

// TTLAfterFinishedControllerSection describes TTLAfterFinishedController.
func TTLAfterFinishedControllerSection() SectionType {
	return SectionType{
		Name:    "ttl-after-finished-controller",
		Aliases: []string{"ttl-after-finished"},
		New:     func() Section { return &TTLAfterFinishedController{ControllerSettings: enabledByDefault(5)} },
	}
}
