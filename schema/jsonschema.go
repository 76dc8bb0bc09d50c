package schema

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// descriptions.json has the doc comments of all types, by type and field.
//
//go:generate go run ./internal/reference describe
//go:generate go run ./internal/reference write
//go:embed descriptions.json
var descriptions []byte

// readDescriptions returns the doc comments of the configuration's types and fields in
// words of the file, by Go name, such as Cluster.Name.
func readDescriptions() (map[string]string, error) {
	var texts map[string]string
	if err := json.Unmarshal(descriptions, &texts); err != nil {
		return nil, fmt.Errorf("read the embedded descriptions: %w", err)
	}
	return texts, nil
}

// JSONSchema describes the configuration file to editors, by JSON Schema draft
// 2020-12. Keys are in the order of the types. Rules across several values are
// not part of it.
func (s *Scheme) JSONSchema() ([]byte, error) {
	texts, err := readDescriptions()
	if err != nil {
		return nil, err
	}
	w := schemaWriter{descriptions: texts, keys: s.keySets()}
	properties := pairs{
		{"apiVersion", pairs{{"const", APIVersion}}},
		{"kind", pairs{{"const", Kind}}},
	}
	properties = append(properties, w.properties(s.root, s.DefaultLayer().Values)...)
	document := pairs{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", Kind + " of " + APIVersion},
		{"description", texts[s.root.typeName]},
		{"type", "object"},
		{"required", []string{"apiVersion", "kind"}},
		{"properties", properties},
		{"additionalProperties", false},
		{"$defs", pairs{{"duration", pairs{
			{"description", "A duration such as 500ms, 30s, 5m or 1h30m."},
			{"anyOf", []any{
				pairs{{"type", "string"}, {"pattern", durationPattern}},
				pairs{{"const", 0}},
			}},
		}}}},
	}
	compact, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode the JSON Schema: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, fmt.Errorf("indent the JSON Schema: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// durationPattern is what time.ParseDuration accepts, without a sign.
const durationPattern = `^\+?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)$`

// pairs is an object whose keys stay in order.
type pairs []pair

type pair struct {
	key   string
	value any
}

func (p pairs) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, one := range p {
		if i > 0 {
			out.WriteByte(',')
		}
		var item bytes.Buffer
		encoder := json.NewEncoder(&item)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(one.key); err != nil {
			return nil, err
		}
		item.WriteByte(':')
		if err := encoder.Encode(one.value); err != nil {
			return nil, fmt.Errorf("%s: %w", one.key, err)
		}
		out.Write(item.Bytes())
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

type schemaWriter struct {
	descriptions map[string]string
	keys         map[string]keySet
}

func (w schemaWriter) properties(s *shape, defaults map[string]any) pairs {
	properties := pairs{}
	for _, f := range s.fields {
		described := pairs{}
		if text := w.descriptions[f.owner]; text != "" {
			described = append(described, pair{"description", text})
		}
		described = append(described, w.value(f.shape, defaults[f.name])...)
		properties = append(properties, pair{f.name, described})
		for _, alias := range f.aliases {
			properties = append(properties, pair{alias, pairs{
				{"description", "Alias of " + f.name + "."},
				{"deprecated", true},
				{"$ref", "#/properties/controllers/properties/" + f.name},
			}})
		}
	}
	return properties
}

func (w schemaWriter) value(s *shape, def any) pairs {
	var out pairs
	add := func(key string, value any) { out = append(out, pair{key, value}) }
	switch s.kind {
	case object:
		defaults, _ := def.(map[string]any)
		add("type", []string{"object", "null"})
		add("properties", w.properties(s, defaults))
		add("additionalProperties", false)
		return out
	case mapping:
		add("type", []string{"object", "null"})
		return append(out, w.keyed(s)...)
	case list:
		add("type", "array")
		items := w.value(s.elem, nil)
		if s.elem.kind == object {
			required := make([]string, 0, len(s.elem.fields))
			for _, f := range s.elem.fields {
				required = append(required, f.name)
			}
			items = append(items, pair{"required", required})
			items[0].value = "object"
		}
		add("items", items)
		if s.rule.maxItems > 0 {
			add("maxItems", s.rule.maxItems)
		}
	case boolean:
		add("type", "boolean")
	case integer:
		add("type", "integer")
		out = append(out, s.rule.numbers()...)
	case number:
		add("type", "number")
		out = append(out, s.rule.numbers()...)
	case period:
		add("$ref", "#/$defs/duration")
		if bounds := s.rule.bounds(""); bounds != "" {
			add("$comment", strings.ToUpper(bounds[:1])+bounds[1:]+".")
		}
		if text, ok := def.(string); ok {
			def = shortDuration(text)
		}
	case text:
		add("type", "string")
		out = append(out, s.rule.strings()...)
	}
	if def != nil && def != any(rejected{}) {
		add("default", def)
	}
	return out
}

// keyed describes a mapping, whose keys are names of a set.
func (w schemaWriter) keyed(s *shape) pairs {
	set, limited := w.keys[s.rule.keys]
	if !limited {
		return pairs{{"additionalProperties", w.value(s.elem, nil)}}
	}
	properties := pairs{}
	for _, name := range sortedKeys(set.names) {
		value := w.value(s.elem, nil)
		if gate, ok := findGate(name); ok && s.rule.keys == "featureGate" {
			value = append(pairs{{"description", fmt.Sprintf("Stage %s.", gate.Stage)}}, value...)
			if gate.Locked {
				value = append(value, pair{"const", gate.Default})
			}
			value = append(value, pair{"default", gate.Default})
		}
		properties = append(properties, pair{name, value})
	}
	return pairs{{"properties", properties}, {"additionalProperties", false}, {"default", pairs{}}}
}

func (r rule) numbers() pairs {
	var out pairs
	if r.min.set {
		out = append(out, pair{"minimum", r.min.value})
	}
	if r.max.set {
		out = append(out, pair{"maximum", r.max.value})
	}
	return out
}

func (r rule) strings() pairs {
	var out pairs
	if len(r.oneOf) > 0 {
		out = append(out, pair{"enum", slices.Clone(r.oneOf)})
	}
	if r.nonempty {
		out = append(out, pair{"minLength", 1})
	}
	switch r.format {
	case "cipherSuite":
		out = append(out, pair{"enum", cipherSuites()})
	case "pathPattern":
		out = append(out, pair{"pattern", `^/[^*]*\*?$`})
	case "ip":
		out = append(out, pair{"anyOf", []any{pairs{{"format", "ipv4"}}, pairs{{"format", "ipv6"}}}})
	case "cidr":
		out = append(out, pair{"pattern", `^[0-9a-fA-F:.]+/[0-9]{1,3}$`})
	case "dnsLabel":
		out = append(out, pair{"pattern", `^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$`}, pair{"maxLength", 63})
	}
	return out
}
