package schema

import (
	"fmt"
	"math"
	"reflect"
)

// tree is a value with its place, whatever it was read from.
type tree struct {
	at Origin
	// value is nil, rejected, bool, int64, uint64, float64 or string for a
	// scalar, []*tree or []entry otherwise.
	value any
	// written is a scalar as it stands in the source.
	written string
}

type entry struct {
	key   string
	at    Origin
	value *tree
}

// describe says what a value is, for messages.
func (t *tree) describe() string {
	switch v := t.value.(type) {
	case nil:
		return "nothing"
	case []*tree:
		return "a list"
	case []entry:
		return "a mapping"
	case string:
		if v == "" {
			return show(v)
		}
		return "the string " + show(v)
	case bool:
		return fmt.Sprint(v)
	default:
		return "the number " + t.shown()
	}
}

// form is what a value is without its content, which may be that of any file.
func (t *tree) form() string {
	switch t.value.(type) {
	case []*tree:
		return "a list"
	case []entry:
		return "a mapping"
	}
	return "a scalar"
}

// shown is a scalar as it was given, where that is safe to print.
func (t *tree) shown() string {
	if s, ok := t.value.(string); ok {
		return show(s)
	}
	if t.written != "" && len(t.written) <= 40 {
		return t.written
	}
	return fmt.Sprint(t.value)
}

// treeOf turns nested Go values into a tree; origins are looked up by path, the
// nearest above for a value without one.
func treeOf(value any, path string, origins map[string]Origin) *tree {
	return placeTree(value, path, origins, Origin{Layer: "default"})
}

func placeTree(value any, path string, origins map[string]Origin, above Origin) *tree {
	at := above
	if own, ok := origins[path]; ok {
		at = own
	}
	t := &tree{at: at}
	v := reflect.ValueOf(value)
	switch {
	case value == nil, value == any(rejected{}):
		t.value = value
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		byKey := map[string]any{}
		for item := v.MapRange(); item.Next(); {
			byKey[item.Key().String()] = item.Value().Interface()
		}
		entries := []entry{}
		for _, key := range sortedKeys(byKey) {
			child := placeTree(byKey[key], join(path, key), origins, at)
			entries = append(entries, entry{key: key, at: child.at, value: child})
		}
		t.value = entries
	case v.Kind() == reflect.Slice:
		items := []*tree{}
		for i := range v.Len() {
			items = append(items, placeTree(v.Index(i).Interface(), fmt.Sprintf("%s[%d]", path, i), origins, at))
		}
		t.value = items
	case v.CanInt():
		t.value = v.Int()
	case v.CanUint():
		t.value = v.Uint()
	case v.CanFloat():
		// JSON knows one kind of number: whole ones are integers here.
		if f := v.Float(); f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			t.value = int64(f)
		} else {
			t.value = f
		}
	case v.Kind() == reflect.String:
		t.value = v.String()
	case v.Kind() == reflect.Bool:
		t.value = v.Bool()
	default:
		t.value = fmt.Sprintf("%v", value)
	}
	return t
}
