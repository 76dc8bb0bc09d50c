package schema

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Layer is what one source gives to the configuration. Layers are merged key by
// key, lists as a whole, and then passed to Scheme.Build.
//
// Decoding leaves out what it reports. It leaves a mark in place of a value that
// it could not use, so that Build does not complain again about its absence: a
// layer that came with errors can still be built, to find the remaining faults.
type Layer struct {
	// Values by name, nested, canonical names only: map[string]any, []any, string,
	// bool, int64 and float64; durations are strings such as 1m30s.
	Values map[string]any
	// Origins of the values, by dotted path.
	Origins map[string]Origin
	// Warnings are about values that are understood but have no effect.
	Warnings Errors
}

// rejected stands in Values for a value that was reported.
type rejected struct{}

// DefaultLayer returns the defaults as the weakest layer.
func (s *Scheme) DefaultLayer() Layer {
	values, err := toValues(s.Default())
	if err != nil {
		// Only a section that cannot be encoded leads here: a programmer's error.
		panic(fmt.Sprintf("schema: encode the defaults: %v", err)) //nolint:forbidigo // a programmer's error
	}
	d := decoder{origins: map[string]Origin{}}
	return Layer{Values: d.object(treeOf(values, "", nil), s.root, ""), Origins: d.origins}
}

// MergeOrigins returns the origins of layers merged in this order, the strongest last.
func MergeOrigins(layers ...Layer) map[string]Origin {
	merged := map[string]Origin{}
	for _, layer := range layers {
		maps.Copy(merged, layer.Origins)
	}
	return merged
}

// toValues turns a configuration into nested maps, without apiVersion and kind.
func toValues(config *ControllerManagerConfiguration) (map[string]any, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, err
	}
	delete(values, "apiVersion")
	delete(values, "kind")
	return values, nil
}
