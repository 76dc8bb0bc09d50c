package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// decoder reads a tree by a shape, strictly: it reports everything that does not
// fit and returns what does.
type decoder struct {
	// elsewhere finds the places of fields that stand in a wrong one; nil gives no such hints.
	elsewhere *shape
	// nullIsAbsent reads null as if the key were not there, and lets objects in
	// lists lack fields, as Kubernetes' own decoders do.
	nullIsAbsent bool
	// keys lists the valid keys of mappings, by the name in their check tag.
	keys map[string]keySet

	origins map[string]Origin
	// elements are the places of the entries of lists, by path. They are no
	// origins: a stronger layer may have a shorter list.
	elements map[string]Origin
	rejected map[string]bool
	errs     Errors
}

// keySet is what a mapping's keys may be.
type keySet struct {
	noun string
	// names maps what is accepted to the canonical name.
	names map[string]string
}

func (d *decoder) fault(at Origin, path, format string, args ...any) {
	d.errs = append(d.errs, Error{Origin: at, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) decode(t *tree, s *shape, path string) any {
	if t.value == any(rejected{}) {
		d.reject(s, path)
		return rejected{}
	}
	switch s.kind {
	case object:
		return d.object(t, s, path)
	case mapping:
		return d.mapping(t, s, path)
	}
	d.origins[path] = t.at
	before := len(d.errs)
	var value any
	if s.kind == list {
		value = d.list(t, s, path)
	} else {
		value = d.scalar(t, s, path)
	}
	if len(d.errs) > before {
		d.reject(s, path)
		return rejected{}
	}
	return value
}

// object returns nothing but a map; a value of another kind becomes one whose
// leaves are all rejected. Null is an object without fields, since that is what
// is left when all of them are commented out.
func (d *decoder) object(t *tree, s *shape, path string) map[string]any {
	values := map[string]any{}
	entries, ok := t.value.([]entry)
	if !ok && t.value != nil {
		hint := ""
		if on, isBool := t.value.(bool); isBool && s.field("enabled") != nil {
			hint = fmt.Sprintf("; write {enabled: %t}", on)
		}
		d.fault(t.at, path, "expected a mapping, got %s%s", t.describe(), hint)
		return d.rejectAll(s, path)
	}
	given := map[string]entry{}
	for _, e := range entries {
		f := s.field(e.key)
		if f == nil {
			d.unknown(e, s, path)
			continue
		}
		if first, twice := given[f.name]; twice {
			d.twice(e, first, join(path, f.name), f.name)
			continue
		}
		given[f.name] = e
		if d.nullIsAbsent && e.value.value == nil {
			continue
		}
		values[f.name] = d.decode(e.value, f.shape, join(path, f.name))
	}
	return values
}

func (d *decoder) twice(e, first entry, path, name string) {
	if e.key == first.key {
		d.fault(e.at, path, "given twice, first at %s; remove one", first.at)
	} else {
		d.fault(e.at, path, "given as %q and, at %s, as %q, which name the same; keep %q", e.key, first.at, first.key, name)
	}
}

func (d *decoder) mapping(t *tree, s *shape, path string) any {
	values := map[string]any{}
	entries, ok := t.value.([]entry)
	if !ok && t.value != nil {
		d.fault(t.at, path, "expected a mapping, got %s", t.describe())
		d.reject(s, path)
		return rejected{}
	}
	if len(entries) == 0 {
		d.origins[path] = t.at
	}
	allowed, limited := d.keys[s.rule.keys]
	given := map[string]entry{}
	for _, e := range entries {
		name := e.key
		if limited {
			canonical, ok := allowed.names[e.key]
			if !ok {
				candidates := sortedKeys(allowed.names)
				d.fault(e.at, below(path, e.key), "unknown %s %s%s", allowed.noun, show(e.key), didYouMean(e.key, candidates))
				continue
			}
			name = canonical
		}
		if first, twice := given[name]; twice {
			d.twice(e, first, join(path, name), name)
			continue
		}
		given[name] = e
		values[name] = d.decode(e.value, s.elem, join(path, name))
	}
	return values
}

func (d *decoder) list(t *tree, s *shape, path string) any {
	items, ok := t.value.([]*tree)
	if !ok {
		if t.value == nil {
			d.fault(t.at, path, "no value given; write [] for an empty list, or remove the key to have the default")
		} else {
			hint := ""
			if given, isText := t.value.(string); isText && s.elem.kind == text && given != "" {
				hint = fmt.Sprintf("; write it as [%s]", t.shown())
			}
			d.fault(t.at, path, "expected a list, got %s%s", t.describe(), hint)
		}
		return nil
	}
	if limit := s.rule.maxItems; limit > 0 && len(items) > limit {
		d.fault(t.at, path, "has %d entries, expected at most %d", len(items), limit)
		return nil
	}
	values := make([]any, 0, len(items))
	element := decoder{keys: d.keys, nullIsAbsent: d.nullIsAbsent, origins: map[string]Origin{}}
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if d.elements != nil {
			d.elements[at] = item.at
		}
		values = append(values, element.decode(item, s.elem, at))
		if s.elem.kind == object && !d.nullIsAbsent {
			element.required(item, s.elem, values[i], at)
		}
	}
	d.errs = append(d.errs, element.errs...)
	return values
}

// required reports the fields that an object in a list lacks: it has no defaults.
func (d *decoder) required(t *tree, s *shape, value any, path string) {
	values, ok := value.(map[string]any)
	if !ok {
		return
	}
	for _, f := range s.fields {
		if _, given := values[f.name]; !given {
			d.fault(t.at, path, "lacks the field %q", f.name)
		}
	}
}

// decimal is how integers are written. YAML's other forms, such as 010 for 8,
// are more often a slip than meant.
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

func (d *decoder) scalar(t *tree, s *shape, path string) any {
	if t.value == nil {
		d.fault(t.at, path, "no value given; expected %s, or remove the key to have the default", s.expected())
		return nil
	}
	problem := ""
	switch s.kind {
	case text:
		if v, ok := t.value.(string); ok {
			if problem = s.rule.checkText(v); problem == "" {
				return v
			}
			break
		}
		problem = fmt.Sprintf("expected %s, got %s", s.expected(), t.describe())
		if t.written != "" {
			problem += fmt.Sprintf("; put it in quotes if it is meant: %q", t.written)
		}
	case boolean:
		if v, ok := t.value.(bool); ok {
			return v
		}
		problem = fmt.Sprintf("expected true or false, got %s%s", t.describe(), t.unquote(s))
	case integer:
		v, ok := t.value.(int64)
		if ok && (t.written == "" || decimal.MatchString(t.written)) {
			if problem = s.rule.checkNumber(float64(v), t.shown()); problem == "" {
				return v
			}
			break
		}
		problem = fmt.Sprintf("expected a whole number%s, got %s%s", s.rule.bounds(" of "), t.describe(), t.unquote(s))
	case number:
		v, ok := t.value.(float64)
		if whole, isWhole := t.value.(int64); isWhole {
			v, ok = float64(whole), true
		}
		if ok {
			if problem = s.rule.checkNumber(v, t.shown()); problem == "" {
				return v
			}
			break
		}
		problem = fmt.Sprintf("expected a number%s, got %s%s", s.rule.bounds(" of "), t.describe(), t.unquote(s))
	case period:
		v, wrong := readDuration(t)
		if problem = wrong; problem == "" {
			if problem = s.rule.checkNumber(float64(v), t.shown()); problem == "" {
				return v.String()
			}
		}
	}
	d.fault(t.at, path, "%s", problem)
	return nil
}

// unquote tells to leave out the quotes around a value that is right without them.
func (t *tree) unquote(s *shape) string {
	quoted, ok := t.value.(string)
	if !ok || s.kind == boolean && quoted != "true" && quoted != "false" || s.kind != boolean && !bareNumber.MatchString(quoted) {
		return ""
	}
	return "; leave out the quotes"
}

var bareNumber = regexp.MustCompile(`^[-+]?[0-9.]+$`)

func readDuration(t *tree) (time.Duration, string) {
	const expected = "expected a duration such as 500ms, 30s, 5m or 1h30m"
	switch v := t.value.(type) {
	case int64, uint64, float64:
		if v == int64(0) {
			return 0, ""
		}
		return 0, fmt.Sprintf("got %s without a unit, %s", t.describe(), expected)
	case string:
		parsed, err := time.ParseDuration(v)
		switch {
		case err == nil:
			return parsed, ""
		case bareNumber.MatchString(v):
			return 0, fmt.Sprintf("got %s without a unit, %s", t.describe(), expected)
		case strings.HasSuffix(v, "d") && bareNumber.MatchString(strings.TrimSuffix(v, "d")):
			return 0, fmt.Sprintf("got %s, but days are not a unit; write hours, such as 24h", t.describe())
		}
	}
	return 0, fmt.Sprintf("%s, got %s", expected, t.describe())
}

// expected names the type in words.
func (s *shape) expected() string {
	switch s.kind {
	case object, mapping:
		return "a mapping"
	case list:
		return "a list"
	case boolean:
		return "true or false"
	case integer:
		return "a whole number" + s.rule.bounds(" of ")
	case number:
		return "a number" + s.rule.bounds(" of ")
	case period:
		return "a duration such as 30s or 5m"
	}
	if len(s.rule.oneOf) > 0 {
		return alternatives(s.rule.oneOf)
	}
	return "a string"
}

// reject remembers that the values at and below a path were reported.
func (d *decoder) reject(s *shape, path string) {
	if d.rejected == nil {
		d.rejected = map[string]bool{}
	}
	d.rejected[path] = true
	if s.kind == object {
		s.each(path, func(leaf string, _ *field) { d.rejected[leaf] = true })
	}
}

// rejectAll returns an object whose leaves are all marked as reported.
func (d *decoder) rejectAll(s *shape, path string) map[string]any {
	d.reject(s, path)
	values := map[string]any{}
	for _, f := range s.fields {
		switch {
		case f.shape.kind == object && !f.shape.optional:
			values[f.name] = d.rejectAll(f.shape, join(path, f.name))
		case f.shape.kind != object:
			values[f.name] = rejected{}
		}
	}
	return values
}

// peerWorkers is how the peer calls a number of workers.
var peerWorkers = regexp.MustCompile(`(?i)^(mirroring)?concurrent.*syncs$`)

// unknown reports a key that is no field, with the best hint there is.
func (d *decoder) unknown(e entry, s *shape, path string) {
	var names, candidates []string
	for _, f := range s.fields {
		names = append(names, f.name)
		candidates = append(append(candidates, f.name), f.aliases...)
	}
	hint := didYouMean(e.key, candidates)
	if hint == "" && peerWorkers.MatchString(e.key) && slices.Contains(names, "workers") {
		hint = `; the number of workers is called "workers" here`
	}
	if hint == "" && d.elsewhere != nil {
		if home, ok := d.elsewhere.home(e.key, path); ok {
			hint = fmt.Sprintf("; it belongs at %s", home)
		}
	}
	if hint == "" && len(names) > 0 && len(names) <= 12 {
		hint = "; expected " + alternatives(names)
	}
	d.fault(e.at, below(path, e.key), "unknown %s %s%s", s.noun, show(e.key), hint)
}

// home returns the path of the one field with a name: the one below a path, if
// there is just one, else the one at any depth.
func (s *shape) home(name, path string) (string, bool) {
	var all, near []string
	var walk func(s *shape, at string)
	walk = func(s *shape, at string) {
		for _, f := range s.fields {
			here := join(at, f.name)
			if f.name == name || slices.Contains(f.aliases, name) {
				all = append(all, here)
				if path != "" && strings.HasPrefix(here, path+".") {
					near = append(near, here)
				}
			}
			walk(f.shape, here)
		}
	}
	walk(s, "")
	switch {
	case len(near) == 1:
		return near[0], true
	case len(near) == 0 && len(all) == 1:
		return all[0], true
	}
	return "", false
}
