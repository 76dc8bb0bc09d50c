package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scheme knows the sections of all controllers, and with them the whole
// configuration: its defaults, how it is read, and what is valid. It does not
// change once made, and serves any number of goroutines.
type Scheme struct {
	sections []SectionType
	byName   map[string]SectionType
	root     *shape
	env      map[string]string
}

// NewScheme returns a Scheme with the sections of all controllers that
// kube-controller-manager 1.25 and 1.37 know, and those of extra ones. It panics
// when two sections share a name or alias, or when a section cannot be described.
func NewScheme(extra ...SectionType) *Scheme {
	s := &Scheme{sections: append(sections(), extra...), byName: map[string]SectionType{}}
	slices.SortFunc(s.sections, func(a, b SectionType) int { return strings.Compare(a.Name, b.Name) })
	for _, section := range s.sections {
		for _, name := range append([]string{section.Name}, section.Aliases...) {
			if other, taken := s.byName[name]; taken || !controllerName.MatchString(name) {
				panic(fmt.Sprintf("schema: the name %q of %s is taken by %q or not a name", name, section.Name, other.Name)) //nolint:forbidigo // a programmer's error
			}
			s.byName[name] = section
		}
	}
	s.root = s.describe()
	s.env = s.environment()
	return s
}

// SectionTypes returns the sections of all controllers, sorted by name.
func (s *Scheme) SectionTypes() []SectionType { return slices.Clone(s.sections) }

// Resolve finds a section by its controller's name or alias.
func (s *Scheme) Resolve(nameOrAlias string) (SectionType, bool) {
	section, ok := s.byName[nameOrAlias]
	return section, ok
}

// Default returns the configuration with every default set.
func (s *Scheme) Default() *ControllerManagerConfiguration {
	config := defaults()
	config.Controllers.Sections = make(map[string]Section, len(s.sections))
	for _, section := range s.sections {
		config.Controllers.Sections[section.Name] = section.New()
	}
	return config
}

// DeepCopy returns a copy that shares nothing with c.
func (c *ControllerManagerConfiguration) DeepCopy() *ControllerManagerConfiguration {
	if c == nil {
		return nil
	}
	return clone(reflect.ValueOf(c)).Interface().(*ControllerManagerConfiguration)
}

// clone copies a value of any type that a section may have.
func clone(from reflect.Value) reflect.Value {
	to := reflect.New(from.Type()).Elem()
	to.Set(from)
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			to.Elem().Set(clone(from.Elem()))
		}
	case reflect.Interface:
		if !from.IsNil() {
			to.Set(clone(from.Elem()))
		}
	case reflect.Struct:
		for i := range from.NumField() {
			if to.Field(i).CanSet() {
				to.Field(i).Set(clone(from.Field(i)))
			}
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				to.Index(i).Set(clone(from.Index(i)))
			}
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
			for entry := from.MapRange(); entry.Next(); {
				to.SetMapIndex(entry.Key(), clone(entry.Value()))
			}
		}
	}
	return to
}

func typeMeta() metav1.TypeMeta { return metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind} }
