// Package supervisor drives the running controllers towards a desired state:
// it starts, stops, restarts and re-sizes single ones, and restarts those that
// fail, without touching the others.
package supervisor

import (
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// State of one controller.
type State string

const (
	// Disabled by the configuration.
	Disabled State = "Disabled"
	// Unavailable because an API, a feature gate or a file that it needs is
	// missing, or because this build does not have it.
	Unavailable State = "Unavailable"
	// Standby is ready to start as soon as this process leads.
	Standby State = "Standby"
	// Waiting for its turn to start.
	Waiting State = "Waiting"
	// Starting waits for caches.
	Starting State = "Starting"
	// Running reconciles.
	Running State = "Running"
	// Stopping finishes the reconciles under way.
	Stopping State = "Stopping"
	// Failed ended with an error or a panic and waits for its back-off.
	Failed State = "Failed"
	// Stuck did not stop within the drain timeout. No second instance is
	// started beside it.
	Stuck State = "Stuck"
)

// Status of one controller.
type Status struct {
	Name   string
	State  State
	Since  time.Time
	Reason string
	Work   work.Status
	// Restarts since the process started, whatever their reason.
	Restarts  int
	LastError string
	// Informers are the resources whose informers it holds.
	Informers []string
}

// Action is one step of a plan.
type Action string

// The actions of a plan.
const (
	Start   Action = "start"
	Stop    Action = "stop"
	Restart Action = "restart"
	Resize  Action = "resize"
	Live    Action = "live"
	// Pending takes effect at the next start of the process.
	Pending Action = "pendingRestart"
)

// Step of a plan: what a reload does to one controller or setting.
type Step struct {
	// Controller is a canonical name; empty for a setting of the engine.
	Controller string `json:"controller,omitempty"`
	// Setting is the path of an engine setting; empty for a controller.
	Setting string `json:"setting,omitempty"`
	Action  Action `json:"action"`
	Reason  string `json:"reason"`
}
