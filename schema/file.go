package schema

import (
	"cmp"
	"fmt"
	"slices"
)

// maxErrors bounds how many faults of one file are listed.
const maxErrors = 100

// DecodeFile reads a configuration file, strictly: unknown and duplicate keys,
// wrong types and values out of range are errors with their place. Every fault is
// reported, in the order of the file, up to a hundred. The file may be of either
// dialect, KubeControllerManagerConfiguration of
// kubecontrollermanager.config.k8s.io/v1alpha1 being the other one.
func (s *Scheme) DecodeFile(path string, data []byte) (Layer, Errors) {
	root, errs := parseYAML(path, data, "apiVersion: "+APIVersion+" and kind: "+Kind+" at least")
	if root == nil {
		return Layer{}, errs
	}
	layer, faults := s.decodeDocument(root)
	layer.Warnings = inOrder(layer.Warnings)
	return layer, inOrder(append(errs, faults...))
}

func (s *Scheme) decodeDocument(root *tree) (Layer, Errors) {
	entries, ok := root.value.([]entry)
	if !ok {
		if root.value == any(rejected{}) {
			return Layer{}, nil
		}
		return Layer{}, Errors{{Origin: root.at, Message: "expected a mapping with apiVersion and kind, got " + root.form()}}
	}
	dialect, rest, errs := s.dialectOf(root, entries)
	if dialect == nil {
		return Layer{}, errs
	}
	layer, faults := dialect.decode(&tree{at: root.at, value: rest})
	return layer, append(errs, faults...)
}

// dialect is one kind of file that is understood.
type dialect struct {
	apiVersion, kind string
	decode           func(*tree) (Layer, Errors)
}

func (s *Scheme) dialects() []dialect {
	return []dialect{
		{APIVersion, Kind, s.decodeOwn},
		{PeerAPIVersion, PeerKind, s.decodePeer},
	}
}

func (s *Scheme) decodeOwn(root *tree) (Layer, Errors) {
	d := s.decoder()
	values := d.object(root, s.root, "")
	return Layer{Values: values, Origins: d.origins}, d.errs
}

func (s *Scheme) decoder() *decoder {
	return &decoder{
		elsewhere: s.root,
		keys:      s.keySets(),
		origins:   map[string]Origin{},
		rejected:  map[string]bool{},
	}
}

// dialectOf finds the file's dialect by its apiVersion and kind, and returns the
// entries without them. One of the two is enough to go on and report the rest.
func (s *Scheme) dialectOf(root *tree, entries []entry) (*dialect, []entry, Errors) {
	var errs Errors
	var rest []entry
	given := map[string]entry{}
	for _, e := range entries {
		if e.key != "apiVersion" && e.key != "kind" {
			rest = append(rest, e)
			continue
		}
		if first, twice := given[e.key]; twice {
			errs = append(errs, Error{Origin: e.at, Path: e.key, Message: fmt.Sprintf("given twice, first at %s; remove one", first.at)})
			continue
		}
		given[e.key] = e
	}
	dialects := s.dialects()
	var best *dialect
	matches := 0
	for i, candidate := range dialects {
		n := 0
		if is(given["apiVersion"], candidate.apiVersion) {
			n++
		}
		if is(given["kind"], candidate.kind) {
			n++
		}
		if n > matches {
			best, matches = &dialects[i], n
		}
	}
	if matches == 2 {
		return best, rest, errs
	}
	versions, kinds := []string{}, []string{}
	for _, candidate := range dialects {
		versions, kinds = append(versions, candidate.apiVersion), append(kinds, candidate.kind)
	}
	if best != nil {
		versions, kinds = []string{best.apiVersion}, []string{best.kind}
	}
	for _, want := range []struct {
		key      string
		accepted []string
	}{{"apiVersion", versions}, {"kind", kinds}} {
		e, ok := given[want.key]
		switch {
		case !ok:
			errs = append(errs, Error{Origin: root.at, Path: want.key, Message: "is missing; expected " + alternatives(want.accepted)})
		case !slices.ContainsFunc(want.accepted, func(name string) bool { return is(e, name) }):
			errs = append(errs, Error{Origin: e.value.at, Path: want.key,
				Message: fmt.Sprintf("got %s, expected %s", e.value.describe(), alternatives(want.accepted))})
		}
	}
	return best, rest, errs
}

func is(e entry, want string) bool {
	return e.value != nil && e.value.value == any(want)
}

// inOrder sorts faults by their place and cuts the list.
func inOrder(errs Errors) Errors {
	slices.SortStableFunc(errs, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Origin.Line, b.Origin.Line), cmp.Compare(a.Origin.Column, b.Origin.Column))
	})
	if len(errs) > maxErrors {
		last := errs[maxErrors]
		last.Path = ""
		last.Message = fmt.Sprintf("and %d more errors from here on", len(errs)-maxErrors)
		errs = append(errs[:maxErrors:maxErrors], last)
	}
	return errs
}
