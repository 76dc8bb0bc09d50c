package schema

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Build makes a configuration from merged layers and validates it as a whole:
// whatever it accepts can be started. What values lack has its default. Faults
// carry the origins of the values concerned; those that decoding has reported are
// not repeated. The configuration is nil when there is a fault, and when a value was
// reported by decoding; one built beside other errors of decoding, such as an unknown
// key, is not to be used either.
func (s *Scheme) Build(values map[string]any, origins map[string]Origin) (*ControllerManagerConfiguration, Errors) {
	root := treeOf(values, "", origins)
	entries, errs := withoutTypeMeta(root)
	d := s.decoder()
	clean := d.object(&tree{at: root.at, value: entries}, s.root, "")
	errs = append(errs, d.errs...)

	config := s.Default()
	data, err := json.Marshal(withoutRejected(clean))
	if err == nil {
		err = json.Unmarshal(data, config)
	}
	if err != nil {
		return nil, append(errs, Error{Origin: root.at, Message: fmt.Sprintf("cannot be read into its types: %v", err)})
	}
	v := validator{config: config, origins: d.origins, rejected: d.rejected}
	v.validate()
	errs = append(errs, v.errs...)
	if len(errs) > 0 || len(d.rejected) > 0 {
		return nil, inOrder(errs)
	}
	return config, nil
}

func withoutTypeMeta(root *tree) ([]entry, Errors) {
	var errs Errors
	var rest []entry
	entries, _ := root.value.([]entry)
	for _, e := range entries {
		want := map[string]string{"apiVersion": APIVersion, "kind": Kind}[e.key]
		switch {
		case want == "":
			rest = append(rest, e)
		case !is(e, want):
			errs = append(errs, Error{Origin: e.at, Path: e.key, Message: fmt.Sprintf("got %s, expected %q", e.value.describe(), want)})
		}
	}
	return rest, errs
}

// withoutRejected leaves the defaults in place of values that were reported.
func withoutRejected(values map[string]any) map[string]any {
	kept := map[string]any{}
	for name, value := range values {
		switch value := value.(type) {
		case rejected:
		case map[string]any:
			kept[name] = withoutRejected(value)
		default:
			kept[name] = value
		}
	}
	return kept
}

// validator checks what concerns several values at once.
type validator struct {
	config   *ControllerManagerConfiguration
	origins  map[string]Origin
	rejected map[string]bool
	errs     Errors
}

// fault reports unless one of the values concerned was reported itself. The place
// is that of the first value that was given, the last one being the weakest claim.
func (v *validator) fault(message string, paths ...string) {
	at := Origin{Layer: "default"}
	place := ""
	for _, path := range paths {
		if v.rejected[path] {
			return
		}
		origin, given := v.origins[path]
		if given && at.Layer == "default" && origin.Layer != "default" {
			at, place = origin, path
		}
	}
	if place == "" && len(paths) > 0 {
		place = paths[0]
	}
	v.errs = append(v.errs, Error{Origin: at, Path: place, Message: message})
}

// section runs the rules that a section has beyond its fields'.
func (v *validator) section(name string, section Section) {
	path := "controllers." + name
	if client := section.Base().Client; client != nil {
		v.limits(client.QPS, client.Burst, path+".client")
	}
	if validator, ok := section.(Validator); ok {
		validator.Validate(v.config, func(message string, fields ...string) {
			paths := make([]string, len(fields))
			for i, field := range fields {
				if outside, ok := strings.CutPrefix(field, "/"); ok {
					paths[i] = outside
				} else {
					paths[i] = join(path, field)
				}
			}
			v.fault(message, paths...)
		})
	}
}
