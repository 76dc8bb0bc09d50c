package schema

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Controllers holds one typed section per controller, by canonical name.
// In JSON and YAML the sections stand beside startInterval.
type Controllers struct {
	// StartInterval is the space between two controllers' starts. Default: 0s.
	StartInterval metav1.Duration
	// Sections by canonical name; every known controller has one.
	Sections map[string]Section
}

// Section is the configuration of one controller: a pointer to a struct that
// embeds Common.
type Section interface {
	// Base returns the fields that every section has.
	Base() *Common
}

// Common is in every controller's section.
type Common struct {
	// Enabled starts the controller. Default: see SectionType.Enabled.
	Enabled bool `json:"enabled"`
	// Workers is how many keys are reconciled at once, at least 1.
	// Default: the peer's for that controller.
	Workers int `json:"workers"`
}

// Base implements Section.
func (c *Common) Base() *Common { return c }

// SectionType describes one controller's section.
type SectionType struct {
	// Name is the controller's canonical name, such as deployment-controller.
	Name string
	// Aliases are accepted in place of Name, such as deployment.
	Aliases []string
	// New returns a section with all defaults set.
	New func() Section
}
