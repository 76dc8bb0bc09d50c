package daemonset

// Reasons of events on DaemonSets, beside those of podcontrol.
const (
	reasonFailedDaemonPod    = "FailedDaemonPod"
	reasonSucceededDaemonPod = "SucceededDaemonPod"
	reasonSelectingAll       = "SelectingAll"
)
