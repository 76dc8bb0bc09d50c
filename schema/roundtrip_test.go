package schema

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// other returns a valid value that differs from the default.
func (s *shape) other(t *testing.T, def any) any {
	t.Helper()
	switch s.kind {
	case boolean:
		return def != true
	case integer, number:
		value, _ := number64(def)
		step := 1.0
		if s.kind == number {
			step = 0.25
		}
		if s.rule.max.set && value+step > s.rule.max.value {
			step = -step
		}
		if s.kind == integer {
			return int64(value + step)
		}
		return math.Round((value+step)*100) / 100
	case period:
		text, ok := def.(string)
		if !ok {
			text = "0s"
		}
		value, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return (value + time.Second).String()
	case text:
		for _, choice := range s.rule.oneOf {
			if choice != def {
				return choice
			}
		}
		if len(s.rule.oneOf) > 0 {
			return def // the only choice
		}
		switch s.rule.format {
		case "ip":
			return "::1"
		case "cidr":
			return "10.128.0.0/9"
		case "path":
			return "/some where/file"
		case "pathPattern":
			return "/debug/*"
		case "cipherSuite":
			return http2Suites[0]
		}
		return "other"
	case list:
		if s.elem.kind == object {
			return []any{map[string]any{"group": "apps", "resource": "deployments"}}
		}
		return []any{s.elem.other(t, "")}
	case mapping:
		if s.rule.keys == "module" {
			return map[string]any{"supervisor": int64(3), "job-controller": int64(4)}
		}
		return map[string]any{"AllAlpha": true, "WatchListClient": false}
	}
	t.Fatalf("no other value for %v", s.kind)
	return nil
}

func setPath(values map[string]any, path string, value any) {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		values[name] = value
		return
	}
	below, ok := values[name].(map[string]any)
	if !ok {
		below = map[string]any{}
		values[name] = below
	}
	setPath(below, rest, value)
}

func fileOf(t *testing.T, values map[string]any) []byte {
	t.Helper()
	document := map[string]any{"apiVersion": APIVersion, "kind": Kind}
	for key, value := range values {
		document[key] = value
	}
	data, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Each value alone, at its default and at another valid value, can be read from a
// file, and comes out as it went in.
func TestEveryLeafCanBeRead(t *testing.T) {
	t.Parallel()
	s := NewScheme()
	defaults := s.DefaultLayer().Values
	leaves := 0
	s.root.each("", func(path string, f *field) {
		leaves++
		def, _ := lookUp(defaults, path)
		values := []any{f.shape.other(t, def)}
		if def != nil {
			values = append(values, def)
		}
		for _, value := range values {
			file := map[string]any{}
			setPath(file, path, value)
			layer, errs := s.DecodeFile("file.yaml", fileOf(t, file))
			if len(errs) > 0 {
				t.Errorf("%s: %v", path, errs)
				continue
			}
			have, _ := lookUp(layer.Values, path)
			if diff := cmp.Diff(value, have); diff != "" {
				t.Errorf("%s (-given +read):\n%s", path, diff)
			}
			if f.shape.kind != mapping && layer.Origins[path].Line == 0 {
				t.Errorf("%s has no origin", path)
			}
		}
	})
	if leaves < 200 {
		t.Errorf("only %d leaves", leaves)
	}
}

// Every section, with all of its values changed, is valid, and survives the way
// through YAML.
func TestEverySectionRoundTrips(t *testing.T) {
	t.Parallel()
	s := NewScheme()
	defaults := s.DefaultLayer()
	for _, section := range s.sections {
		path := "controllers." + section.Name
		values := map[string]any{}
		s.root.find(path).each(path, func(leaf string, f *field) {
			switch strings.TrimPrefix(leaf, path+".") {
			case "certFile", "keyFile":
				if section.Name == "certificatesigningrequest-signing-controller" {
					return // excluded by the pairs of single signers
				}
			case "nodeCIDRMaskSize":
				return // excluded by the sizes of single families
			}
			def, _ := lookUp(defaults.Values, leaf)
			setPath(values, leaf, f.shape.other(t, def))
		})
		assertRoundTrip(t, s, section.Name, fileOf(t, values))
	}
}

// The engine's part, changed as a whole.
func TestEngineRoundTrips(t *testing.T) {
	t.Parallel()
	s := NewScheme()
	defaults := s.DefaultLayer()
	values := map[string]any{}
	for _, f := range s.root.fields {
		if f.name == "controllers" || f.shape.kind != object {
			continue
		}
		f.shape.each(f.name, func(leaf string, f *field) {
			def, _ := lookUp(defaults.Values, leaf)
			setPath(values, leaf, f.shape.other(t, def))
		})
	}
	setPath(values, "featureGates", map[string]any{"AllAlpha": true})
	setPath(values, "controllers.startInterval", "250ms")
	assertRoundTrip(t, s, "engine", fileOf(t, values))
}

func assertRoundTrip(t *testing.T, s *Scheme, name string, file []byte) {
	t.Helper()
	first, err := buildFile(s, file)
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, file)
		return
	}
	if cmp.Equal(first, s.Default()) {
		t.Errorf("%s: the configuration is that of all defaults", name)
	}
	written, err := yaml.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := buildFile(s, written)
	if err != nil {
		t.Errorf("%s, written: %v", name, err)
		return
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("%s (-first +second):\n%s", name, diff)
	}
	third := s.Default()
	if err := yaml.Unmarshal(written, third); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, third); diff != "" {
		t.Errorf("%s by the types' own decoding (-first +third):\n%s", name, diff)
	}
}

// buildFile reads a file over the defaults.
func buildFile(s *Scheme, data []byte) (*ControllerManagerConfiguration, error) {
	layer, errs := s.DecodeFile("file.yaml", data)
	if len(errs) > 0 {
		return nil, errs
	}
	return buildLayer(s, layer)
}

func buildLayer(s *Scheme, layer Layer) (*ControllerManagerConfiguration, error) {
	base := s.DefaultLayer()
	merge(base.Values, layer.Values)
	config, errs := s.Build(base.Values, MergeOrigins(base, layer))
	if len(errs) > 0 {
		return nil, errs
	}
	if config == nil {
		return nil, fmt.Errorf("neither a configuration nor errors")
	}
	return config, nil
}
