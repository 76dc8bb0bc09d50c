package schema

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rule is what a value must keep beyond its type. Bounds of durations count in
// nanoseconds.
type rule struct {
	min, max     bound
	oneOf        []string
	format       string
	keys         string
	maxItems     int
	nonempty     bool
	wholeSeconds bool
}

type bound struct {
	set   bool
	value float64
	text  string
}

// parseRule reads a check tag. In lists, everything but maxItems is for the
// elements; in maps everything but keys.
func parseRule(tag string, k kind) (rule, error) {
	var r rule
	if tag == "" {
		return r, nil
	}
	for part := range strings.SplitSeq(tag, ",") {
		name, value, _ := strings.Cut(part, "=")
		if container := k == list || k == mapping; container != (name == "maxItems" || name == "keys") {
			continue
		}
		var err error
		switch name {
		case "min":
			r.min, err = parseBound(value, k)
		case "max":
			r.max, err = parseBound(value, k)
		case "oneof":
			r.oneOf = strings.Split(value, "|")
		case "format":
			if _, ok := formats[value]; !ok {
				err = fmt.Errorf("no format %q", value)
			}
			r.format = value
		case "keys":
			r.keys = value
		case "maxItems":
			r.maxItems, err = strconv.Atoi(value)
		case "nonempty":
			r.nonempty = true
		case "wholeSeconds":
			r.wholeSeconds = true
		default:
			err = fmt.Errorf("no rule %q", name)
		}
		if err != nil {
			return rule{}, err
		}
	}
	return r, nil
}

func parseBound(s string, k kind) (bound, error) {
	if k == period {
		d, err := time.ParseDuration(s)
		return bound{set: true, value: float64(d), text: s}, err
	}
	v, err := strconv.ParseFloat(s, 64)
	return bound{set: true, value: v, text: s}, err
}

// checkText returns what is wrong with a string, or nothing.
func (r rule) checkText(s string) string {
	switch {
	case len(r.oneOf) > 0:
		if !slices.Contains(r.oneOf, s) {
			return fmt.Sprintf("got %s, expected %s%s", show(s), alternatives(r.oneOf), didYouMean(s, r.oneOf))
		}
	case s == "" && r.nonempty:
		return "must not be empty"
	case r.format != "":
		return formats[r.format](s)
	}
	return ""
}

// checkNumber returns what is wrong with a number or duration, or nothing;
// shown is the value as it was given.
func (r rule) checkNumber(v float64, shown string) string {
	below, above := r.min.set && v < r.min.value, r.max.set && v > r.max.value
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Sprintf("got %s, expected a finite number%s", shown, r.bounds(", "))
	case below || above:
		return fmt.Sprintf("got %s, expected %s", shown, r.bounds(""))
	case r.wholeSeconds && math.Mod(v, float64(time.Second)) != 0:
		return fmt.Sprintf("got %s, expected whole seconds", shown)
	}
	return ""
}

func (r rule) bounds(prefix string) string {
	switch {
	case r.min.set && r.max.set:
		return fmt.Sprintf("%sat least %s and at most %s", prefix, r.min.text, r.max.text)
	case r.min.set:
		return fmt.Sprintf("%sat least %s", prefix, r.min.text)
	case r.max.set:
		return fmt.Sprintf("%sat most %s", prefix, r.max.text)
	}
	return ""
}

func alternatives(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}
