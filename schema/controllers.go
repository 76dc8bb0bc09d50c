package schema

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controllers holds one typed section per controller, by canonical name.
// In JSON and YAML the sections stand beside startInterval.
type Controllers struct {
	// StartInterval is the space between two controllers' starts. Default: 0s.
	StartInterval metav1.Duration `json:"startInterval" check:"min=0s,max=1h"`
	// Sections by canonical name; every known controller has one.
	Sections map[string]Section `json:"-"`
}

// Section is the configuration of one controller: a pointer to a struct that
// embeds ControllerSettings. Its fields have json tags and, for what their type does not
// say, check tags; see SectionType.
type Section interface {
	// Base returns the fields that every section has.
	Base() *ControllerSettings
}

// ControllerSettings is in every controller's section.
type ControllerSettings struct {
	// Enabled starts the controller. Default: true for most controllers.
	Enabled bool `json:"enabled"`
	// Workers is how many keys are reconciled at once, at least 1.
	// Default: the peer's for that controller.
	Workers int `json:"workers" check:"min=1,max=10000"`
	// Client bounds this controller's requests in place of cluster.client.
	// Default: unset, cluster.client holds.
	Client *ClientLimits `json:"client,omitempty"`
}

// ClientLimits bound the requests of one controller's client.
type ClientLimits struct {
	// QPS of the client; 0 means no client-side limit beyond what API Priority
	// and Fairness asks for. Default: 0.
	QPS float64 `json:"qps" check:"min=0,max=1000000"`
	// Burst above QPS; at least 1 when QPS is set. Default: 0.
	Burst int `json:"burst" check:"min=0,max=1000000"`
}

// Base implements Section.
func (c *ControllerSettings) Base() *ControllerSettings { return c }

// Validator is implemented by sections with rules that no single field can
// express. Rules of single fields belong into check tags, from which the JSON
// Schema is made too.
type Validator interface {
	// Validate calls report for every fault, with what is wrong and the JSON
	// names of the fields concerned, the one to change first; a field of the
	// configuration outside the section is named by its whole path after a slash,
	// such as /cluster.clusterCIDRs.
	Validate(config *ControllerManagerConfiguration, report func(message string, fields ...string))
}

// SectionType describes one controller's section.
//
// The fields of a section may be bool, string, int, int32, int64, float64,
// metav1.Duration, structs of these, lists of these, and maps of these by string.
// Check tags are comma lists of min=, max=, oneof=a|b, format=, maxItems=,
// nonempty and wholeSeconds.
type SectionType struct {
	// Name is the controller's canonical name, such as deployment-controller.
	Name string
	// Aliases are accepted in place of Name, such as deployment.
	Aliases []string
	// MaxWorkers is the most workers allowed. 0 means 10000.
	MaxWorkers int
	// New returns a section with all defaults set.
	New func() Section
}

const startInterval = "startInterval"

// MarshalJSON writes startInterval and beside it the sections, sorted by name.
func (c Controllers) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	interval, err := json.Marshal(c.StartInterval)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", startInterval, err)
	}
	fmt.Fprintf(&out, "{%q:%s", startInterval, interval)
	for _, name := range sortedKeys(c.Sections) {
		section, err := json.Marshal(c.Sections[name])
		if err != nil {
			return nil, fmt.Errorf("encode the section of %s: %w", name, err)
		}
		fmt.Fprintf(&out, ",%q:%s", name, section)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// UnmarshalJSON reads what MarshalJSON writes, over what c holds already.
// A section that c does not hold starts from its defaults, and must be that of
// a built-in controller. Names are canonical. It is not strict inside of sections:
// Scheme.DecodeFile is.
func (c *Controllers) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	var builtin *Scheme
	for _, name := range sortedKeys(raw) {
		if name == startInterval {
			if err := json.Unmarshal(raw[name], &c.StartInterval); err != nil {
				return fmt.Errorf("controllers.%s: %w", name, err)
			}
			continue
		}
		section, ok := c.Sections[name]
		if !ok {
			if builtin == nil {
				builtin = NewScheme()
			}
			sectionType, known := builtin.Resolve(name)
			if !known || sectionType.Name != name {
				return fmt.Errorf("controllers.%s: no such controller", name)
			}
			section = sectionType.New()
			if c.Sections == nil {
				c.Sections = map[string]Section{}
			}
			c.Sections[name] = section
		}
		if err := json.Unmarshal(raw[name], section); err != nil {
			return fmt.Errorf("controllers.%s: %w", name, err)
		}
	}
	return nil
}
