package schema

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// controllerName is what a controller may be called: it stands as a key in
// dotted paths, so that a dot in it would be ambiguous.
var controllerName = regexp.MustCompile(`^[a-z][a-z0-9-]*[a-z0-9]$`)

type kind int

const (
	text kind = iota
	object
	mapping
	list
	integer
	number
	boolean
	period
)

// shape is what a value must look like. Decoding, validation, environment
// variables and the JSON Schema all follow shapes, which are made from the types.
type shape struct {
	kind   kind
	fields []*field // of an object, in the order of the type
	elem   *shape   // of a mapping or list
	rule   rule
	// typeName is the Go name of an object's type.
	typeName string
	// optional objects are absent unless given.
	optional bool
	// what one field of the object is called in messages.
	noun string
}

type field struct {
	name    string
	aliases []string
	shape   *shape
	// owner is the Go name of the struct and field, such as Cluster.Name.
	owner string
}

var (
	durationType = reflect.TypeFor[metav1.Duration]()
	typeMetaType = reflect.TypeFor[metav1.TypeMeta]()
)

// describe makes the shape of the whole configuration.
func (s *Scheme) describe() *shape {
	root := shapeOf(reflect.TypeFor[ControllerManagerConfiguration](), "")
	controllers := root.field("controllers").shape
	controllers.noun = "controller"
	for _, section := range s.sections {
		instance := section.New()
		sectionShape := shapeOf(reflect.TypeOf(instance).Elem(), "")
		if section.MaxWorkers > 0 {
			workers := sectionShape.field("workers").shape
			workers.rule.max = bound{set: true, value: float64(section.MaxWorkers), text: fmt.Sprint(section.MaxWorkers)}
		}
		controllers.fields = append(controllers.fields, &field{
			name: section.Name, aliases: section.Aliases, shape: sectionShape, owner: sectionShape.typeName,
		})
	}
	return root
}

// shapeOf panics on a type that cannot be described: a mistake in a section.
func shapeOf(t reflect.Type, check string) *shape {
	s := &shape{}
	for t.Kind() == reflect.Pointer {
		t, s.optional = t.Elem(), true
	}
	switch {
	case t == durationType:
		s.kind = period
	case t.Kind() == reflect.Struct:
		s.kind, s.typeName, s.noun = object, t.Name(), "field"
		s.addFields(t)
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		s.kind, s.noun = mapping, "key"
		s.elem = shapeOf(t.Elem(), check)
	case t.Kind() == reflect.Slice:
		s.kind = list
		s.elem = shapeOf(t.Elem(), check)
	case t.Kind() == reflect.String:
		s.kind = text
	case t.Kind() == reflect.Bool:
		s.kind = boolean
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int32, t.Kind() == reflect.Int64:
		s.kind = integer
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		s.kind = number
	default:
		panic(fmt.Sprintf("schema: cannot describe a field of type %s", t)) //nolint:forbidigo // a programmer's error
	}
	rule, err := parseRule(check, s.kind)
	if err != nil {
		panic(fmt.Sprintf("schema: check tag %q: %v", check, err)) //nolint:forbidigo // a programmer's error
	}
	s.rule = rule
	return s
}

func (s *shape) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == typeMetaType, name == "-", !f.IsExported():
			continue
		case f.Anonymous && name == "":
			s.addFields(f.Type)
			continue
		case name == "":
			name = f.Name
		}
		s.fields = append(s.fields, &field{
			name:  name,
			shape: shapeOf(f.Type, f.Tag.Get("check")),
			owner: t.Name() + "." + f.Name,
		})
	}
}

// field finds a field by its name or alias.
func (s *shape) field(name string) *field {
	for _, f := range s.fields {
		if f.name == name {
			return f
		}
		for _, alias := range f.aliases {
			if alias == name {
				return f
			}
		}
	}
	return nil
}

// each calls visit for every field below the shape that is not an object, with
// its path.
func (s *shape) each(path string, visit func(path string, f *field)) {
	for _, f := range s.fields {
		at := join(path, f.name)
		if f.shape.kind == object {
			f.shape.each(at, visit)
		} else {
			visit(at, f)
		}
	}
}

// find walks down a dotted path of names or aliases.
func (s *shape) find(path string) *shape {
	for name := range strings.SplitSeq(path, ".") {
		f := s.field(name)
		switch {
		case f != nil:
			s = f.shape
		case s.kind == mapping:
			s = s.elem
		default:
			return nil
		}
	}
	return s
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
