package deployment

// Reasons of events and conditions.
const (
	reasonScaling                   = "ScalingReplicaSet"
	reasonSelectingAll              = "SelectingAll"
	reasonReplicaSetCreateError     = "ReplicaSetCreateError"
	reasonRollback                  = "DeploymentRollback"
	reasonRollbackRevisionNotFound  = "DeploymentRollbackRevisionNotFound"
	reasonRollbackTemplateUnchanged = "DeploymentRollbackTemplateUnchanged"

	reasonFoundNewReplicaSet         = "FoundNewReplicaSet"
	reasonNewReplicaSetCreated       = "NewReplicaSetCreated"
	reasonNewReplicaSetAvailable     = "NewReplicaSetAvailable"
	reasonReplicaSetUpdated          = "ReplicaSetUpdated"
	reasonProgressDeadlineExceeded   = "ProgressDeadlineExceeded"
	reasonPaused                     = "DeploymentPaused"
	reasonResumed                    = "DeploymentResumed"
	reasonMinimumReplicasAvailable   = "MinimumReplicasAvailable"
	reasonMinimumReplicasUnavailable = "MinimumReplicasUnavailable"
)
