package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// PlanOptions are what a plan depends on beside the two configurations.
type PlanOptions struct {
	// Descriptors of the controllers in this build; others have no steps.
	Descriptors []controller.Descriptor
	// Unavailable as in Options. Default: all controllers can run whose feature gates are on.
	Unavailable func(name string, cfg *schema.ControllerManagerConfiguration) string
}

// Plan tells what a reload from one configuration to another does: settings by
// path, then controllers by name. from is nil when the process starts.
func Plan(from, to *schema.ControllerManagerConfiguration, o PlanOptions) []Step {
	var steps []Step
	if from != nil {
		steps = settingSteps(from, to)
	}
	descriptors := slices.SortedFunc(slices.Values(o.Descriptors), func(a, b controller.Descriptor) int {
		return strings.Compare(a.Name(), b.Name())
	})
	for _, d := range descriptors {
		steps = append(steps, controllerSteps(d, from, to, o.Unavailable)...)
	}
	return steps
}

func controllerSteps(d controller.Descriptor, from, to *schema.ControllerManagerConfiguration,
	unavailable func(string, *schema.ControllerManagerConfiguration) string) []Step {
	step := func(action Action, reason string) []Step {
		return []Step{{Controller: d.Name(), Action: action, Reason: reason}}
	}
	before, now := "the process starts", mayRun(d, to, unavailable)
	if from != nil {
		before = mayRun(d, from, unavailable)
	}
	switch {
	case before != "" && now != "":
		return nil
	case before != "" && from == nil:
		return step(Start, before)
	case before != "":
		return step(Start, "was "+before)
	case now != "":
		return step(Stop, now)
	}
	delta := compare(d, from, to)
	if len(delta.restart) > 0 {
		return step(Restart, join(delta.restart))
	}
	var steps []Step
	if len(delta.resize) > 0 {
		steps = step(Resize, join(delta.resize))
	}
	if len(delta.live) > 0 {
		steps = append(steps, step(Live, join(delta.live))...)
	}
	return steps
}

const reasonDisabled = "disabled"

// MayRun tells whether a controller of this build runs with cfg, once this
// process leads. unavailable is as in Options.
func MayRun(d controller.Descriptor, cfg *schema.ControllerManagerConfiguration,
	unavailable func(string, *schema.ControllerManagerConfiguration) string) bool {
	return mayRun(d, cfg, unavailable) == ""
}

// mayRun returns why the controller is not to run with cfg, or nothing.
func mayRun(d controller.Descriptor, cfg *schema.ControllerManagerConfiguration,
	unavailable func(string, *schema.ControllerManagerConfiguration) string) string {
	if !enabled(d, cfg) {
		return reasonDisabled
	}
	return whyUnavailable(d, cfg, unavailable)
}

func enabled(d controller.Descriptor, cfg *schema.ControllerManagerConfiguration) bool {
	section, ok := cfg.Controllers.Sections[d.Name()]
	return ok && section.Base().Enabled
}

func whyUnavailable(d controller.Descriptor, cfg *schema.ControllerManagerConfiguration,
	unavailable func(string, *schema.ControllerManagerConfiguration) string) string {
	for _, gate := range d.FeatureGates {
		if !schema.FeatureEnabled(cfg, gate) {
			return fmt.Sprintf("feature gate %s is off", gate)
		}
	}
	if unavailable == nil {
		return ""
	}
	return unavailable(d.Name(), cfg)
}

// delta is what differs for a controller that runs with both configurations.
type delta struct {
	restart, resize, live []change
}

func (d delta) empty() bool { return len(d.restart)+len(d.resize)+len(d.live) == 0 }

// compare sorts what differs by what has to be done about it.
func compare(d controller.Descriptor, from, to *schema.ControllerManagerConfiguration) delta {
	var found delta
	for _, c := range diff(from.Controllers.Sections[d.Name()], to.Controllers.Sections[d.Name()]) {
		switch {
		case c.path == "enabled":
		case c.path == "workers":
			found.resize = append(found.resize, c)
		case below(c.path, "client"), slices.ContainsFunc(d.LiveFields, func(field string) bool { return below(c.path, field) }):
			found.live = append(found.live, c)
		default:
			found.restart = append(found.restart, c)
		}
	}
	for _, c := range diff(from.Cluster, to.Cluster) {
		if slices.ContainsFunc(d.ReadsCluster, func(field string) bool { return below(c.path, field) }) {
			c.path = "cluster." + c.path
			found.restart = append(found.restart, c)
		}
	}
	for _, gate := range d.ReadsFeatureGates {
		before, after := schema.FeatureEnabled(from, gate), schema.FeatureEnabled(to, gate)
		if before != after {
			found.restart = append(found.restart, change{gatePrefix + gate, before, after})
		}
	}
	return found
}

// below tells whether path is field or a part of it.
func below(path, field string) bool { return path == field || strings.HasPrefix(path, field+".") }

func join(changes []change) string {
	texts := make([]string, len(changes))
	for i, c := range changes {
		texts[i] = c.String()
	}
	return strings.Join(texts, ", ")
}
