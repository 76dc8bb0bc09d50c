package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// change is a leaf of the configuration's JSON that differs.
type change struct {
	path     string
	from, to any
}

// unset is the value of a leaf that is not there.
type unset struct{}

func (c change) String() string {
	return fmt.Sprintf("%s: %s → %s", c.path, show(c.from), show(c.to))
}

func show(value any) string {
	switch v := value.(type) {
	case unset:
		return "unset"
	case string:
		if v != "" {
			return v
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// diff returns what differs between the JSON forms of two values, by path.
// Lists are compared as a whole.
func diff(from, to any) []change {
	if reflect.DeepEqual(from, to) {
		return nil // nearly always, and much cheaper
	}
	before, after := leaves(from), leaves(to)
	var changes []change
	for _, path := range slices.Sorted(maps.Keys(union(before, after))) {
		c := change{path: path, from: unset{}, to: unset{}}
		if v, ok := before[path]; ok {
			c.from = v
		}
		if v, ok := after[path]; ok {
			c.to = v
		}
		if show(c.from) != show(c.to) && !(nothing(c.from) && nothing(c.to)) {
			changes = append(changes, c)
		}
	}
	return changes
}

// nothing tells whether value is not there, or an empty list: a nil slice and an empty one mean the same.
func nothing(value any) bool {
	list, isList := value.([]any)
	return value == unset{} || isList && len(list) == 0
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// leaves returns everything in the JSON form of value that is neither an object
// nor null, by its path. The configuration's types can always be encoded.
func leaves(value any) map[string]any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("supervisor: encode %T: %v", value, err)) //nolint:forbidigo // a programmer's error
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // float64 would lose digits
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		panic(fmt.Sprintf("supervisor: decode %T: %v", value, err)) //nolint:forbidigo // a programmer's error
	}
	found := map[string]any{}
	collect(decoded, "", found)
	return found
}

func collect(value any, path string, into map[string]any) {
	object, ok := value.(map[string]any)
	if !ok {
		if value != nil {
			into[path] = value
		}
		return
	}
	for name, child := range object {
		if path == "" {
			collect(child, name, into)
		} else {
			collect(child, path+"."+name, into)
		}
	}
}
