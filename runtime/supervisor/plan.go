package supervisor

import (
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// PlanOptions are what a plan depends on beside the two configurations.
type PlanOptions struct {
	// Descriptors of the controllers in this build; others have no steps.
	Descriptors []controller.Descriptor
	// Unavailable and FeatureEnabled as in Options. May be nil.
	Unavailable    func(name string, cfg *schema.ControllerManagerConfiguration) string
	FeatureEnabled func(cfg *schema.ControllerManagerConfiguration, gate string) bool
}

// Plan tells what a reload from one configuration to another does: settings by
// path, then controllers by name. from is nil when the process starts.
func Plan(from, to *schema.ControllerManagerConfiguration, o PlanOptions) []Step { return nil }

// PendingSetting is a setting whose wanted value takes effect at the next start of the process.
type PendingSetting struct {
	Path string `json:"path"`
	// Running and Wanted are the values as they are in JSON.
	Running any `json:"running"`
	Wanted  any `json:"wanted"`
}

// KeepPending returns wanted with those settings that need a restart of the
// process as they are in running, and these settings. Neither argument is changed.
func KeepPending(running, wanted *schema.ControllerManagerConfiguration) (*schema.ControllerManagerConfiguration, []PendingSetting) {
	return nil, nil
}
