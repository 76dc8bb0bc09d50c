package schema

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// DecodeSet reads the argument of a --set flag, path=value. The path is dotted, of
// names as in the file. The value is a YAML scalar, list or mapping in one line;
// a list may also be separated by commas.
func (s *Scheme) DecodeSet(arg string) (Layer, Errors) {
	layer := Layer{Values: map[string]any{}, Origins: map[string]Origin{}}
	path, value, ok := strings.Cut(arg, "=")
	path = strings.TrimSpace(path)
	at := Origin{Layer: "set", Source: "--set " + path}
	if !ok || path == "" {
		if !simplePath(path) {
			at.Source = "--set"
		}
		return layer, Errors{{Origin: at, Message: "expected path=value, such as controllers.deployment-controller.workers=7"}}
	}
	if !simplePath(path) {
		at.Source = "--set"
		return layer, Errors{{Origin: at, Message: fmt.Sprintf("got the path %s, expected names joined by dots", show(path))}}
	}
	errs := s.decodeValue(&layer, at, path, value)
	return layer, errs
}

func simplePath(path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		if !simpleKey.MatchString(name) {
			return false
		}
	}
	return true
}

// decodeValue reads the value of one path into a layer.
func (s *Scheme) decodeValue(layer *Layer, at Origin, path, value string) Errors {
	parsed, err := parseValue(value, s.root.find(path), at)
	if err != nil {
		return Errors{{Origin: at, Path: path, Message: err.Error()}}
	}
	// The value is wrapped into the mappings above it, so that the decoder finds
	// unknown names on the way down by itself.
	names := strings.Split(path, ".")
	for i := len(names) - 1; i >= 0; i-- {
		parsed = &tree{at: at, value: []entry{{key: names[i], at: at, value: parsed}}}
	}
	d := s.decoder()
	merge(layer.Values, d.object(parsed, s.root, ""))
	for path := range d.origins {
		layer.Origins[path] = at
	}
	return d.errs
}

func merge(into, from map[string]any) {
	for key, value := range from {
		below, isMap := value.(map[string]any)
		if own, both := into[key].(map[string]any); isMap && both {
			merge(own, below)
		} else {
			into[key] = value
		}
	}
}

// parseValue reads a value given outside a file. What it may be is known from
// the shape, so that strings need no quotes.
func parseValue(value string, s *shape, at Origin) (*tree, error) {
	trimmed := strings.TrimSpace(value)
	quoted := strings.HasPrefix(trimmed, `"`) || strings.HasPrefix(trimmed, "'")
	switch {
	case len(value) > MaxFileSize || notText([]byte(value)) >= 0:
		return nil, fmt.Errorf("the value is not a text of at most %d bytes", MaxFileSize)
	case s == nil, s.kind == object, s.kind == mapping:
	case s.kind == list && !strings.HasPrefix(trimmed, "["):
		items := []*tree{}
		for item := range strings.SplitSeq(trimmed, ",") {
			parsed, err := parseValue(item, s.elem, at)
			if err != nil {
				return nil, err
			}
			items = append(items, parsed)
		}
		if trimmed == "" {
			return nil, fmt.Errorf("no value given; write [] for an empty list")
		}
		return &tree{at: at, value: items}, nil
	case (s.kind == text || s.kind == period) && !quoted:
		parsed := &tree{at: at, value: trimmed}
		if s.kind == period && trimmed == "0" {
			parsed.value = int64(0)
		}
		return parsed, nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(value), &document); err != nil {
		return nil, fmt.Errorf("the value is not valid YAML")
	}
	if len(document.Content) == 0 {
		return &tree{at: at}, nil
	}
	reader := treeReader{file: at, open: map[*yaml.Node]bool{}}
	parsed := reader.read(&document, 0)
	if len(reader.errs) > 0 {
		return nil, fmt.Errorf("the value %s", reader.errs[0].Message)
	}
	parsed.place(at)
	return parsed, nil
}

// place gives a tree and all below it the same origin.
func (t *tree) place(at Origin) {
	t.at = at
	switch value := t.value.(type) {
	case []*tree:
		for _, item := range value {
			item.place(at)
		}
	case []entry:
		for i := range value {
			value[i].at = at
			value[i].value.place(at)
		}
	}
}
