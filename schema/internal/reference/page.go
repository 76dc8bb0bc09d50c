package main

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// described is one property of the JSON Schema, in order.
type described struct {
	name        string
	description string
	kind        string
	bounds      string
	def         *yaml.Node
	alias       bool
	fields      []described
}

// properties reads the JSON Schema back: what editors are told and what the page
// tells is the same then.
func properties() ([]described, error) {
	text, err := schema.NewScheme().JSONSchema()
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	return fieldsOf(document.Content[0]), nil
}

func fieldsOf(object *yaml.Node) []described {
	var fields []described
	listed := get(object, "properties")
	if listed == nil {
		return nil
	}
	for i := 0; i+1 < len(listed.Content); i += 2 {
		property := listed.Content[i+1]
		fields = append(fields, described{
			name:        listed.Content[i].Value,
			description: textOf(property, "description"),
			kind:        typeOf(property),
			bounds:      boundsOf(property, textOf(property, "description")),
			def:         get(property, "default"),
			alias:       get(property, "deprecated") != nil,
			fields:      fieldsOf(property),
		})
	}
	return fields
}

func get(object *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == key {
			return object.Content[i+1]
		}
	}
	return nil
}

func textOf(object *yaml.Node, key string) string {
	if node := get(object, key); node != nil {
		return node.Value
	}
	return ""
}

func typeOf(property *yaml.Node) string {
	if textOf(property, "$ref") == "#/$defs/duration" {
		return "duration"
	}
	node := get(property, "type")
	switch {
	case node == nil:
		return "constant"
	case node.Kind == yaml.SequenceNode:
		return "mapping"
	case node.Value == "array":
		return "list of " + plural(typeOf(get(property, "items")))
	case node.Value == "object":
		return "mapping"
	}
	return node.Value
}

func plural(kind string) string { return kind + "s" }

// boundsOf leaves out the choices that the description names itself.
func boundsOf(property *yaml.Node, description string) string {
	if items := get(property, "items"); items != nil {
		return boundsOf(items, description)
	}
	var parts []string
	if enum := get(property, "enum"); enum != nil {
		values, named := make([]string, len(enum.Content)), true
		for i, value := range enum.Content {
			values[i] = "`" + value.Value + "`"
			named = named && strings.Contains(description, value.Value)
		}
		if !named {
			parts = append(parts, "One of "+strings.Join(values, ", ")+".")
		}
	}
	least, most := textOf(property, "minimum"), textOf(property, "maximum")
	switch {
	case least != "" && most != "":
		parts = append(parts, fmt.Sprintf("%s to %s.", least, most))
	case least != "":
		parts = append(parts, fmt.Sprintf("At least %s.", least))
	}
	if note := textOf(property, "$comment"); note != "" {
		parts = append(parts, note)
	}
	return strings.Join(parts, " ")
}

// inline writes a default in one line.
func inline(node *yaml.Node) (string, error) {
	if node == nil {
		return "", nil
	}
	flow := *node
	flow.Style = yaml.FlowStyle
	if flow.Kind == yaml.ScalarNode {
		flow.Style = 0
	}
	for _, child := range flow.Content {
		unquote(child)
	}
	out, err := yaml.Marshal(&flow)
	return strings.Join(strings.Fields(string(out)), " "), err
}

// unquote leaves it to the encoder which strings need quotes.
func unquote(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode {
		node.Style = 0
	} else {
		node.Style = yaml.FlowStyle
	}
	for _, child := range node.Content {
		unquote(child)
	}
}

// page writes the reference for people.
func page(string) ([]byte, error) {
	root, err := properties()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `# Configuration reference

Made from the types by `+"`go generate ./schema`"+`; do not edit.

The file is YAML or JSON, `+"`apiVersion: %s`, `kind: %s`"+`. Every key is optional but these two.
All keys with their defaults are in [controller-manager.yaml](../../controller-manager.yaml);
[controller-manager.schema.json](controller-manager.schema.json) is for editors.

A value may also be given by `+"`--set path=value`"+` or by an environment variable, whose name is `+"`WHEELHOUSE_`"+`
and the path in capitals, such as `+"`%s`"+`.
Weakest first: default, file, environment, `+"`--set`"+`.

Durations are written as `+"`500ms`, `30s`, `5m` or `1h30m`"+`.

`, schema.APIVersion, schema.Kind, schema.Variable("controllers.deployment-controller.workers"))
	var controllers described
	for _, section := range root {
		switch section.name {
		case "apiVersion", "kind":
		case "controllers":
			controllers = section
		case "featureGates":
			writeGates(&out, section)
		default:
			fmt.Fprintf(&out, "## %s\n\n%s\n\n", section.name, section.meaning())
			if err := writeTable(&out, section.fields); err != nil {
				return nil, err
			}
		}
	}
	if err := writeControllers(&out, controllers); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func writeTable(out *bytes.Buffer, fields []described) error {
	out.WriteString("| key | type | default | meaning |\n| --- | --- | --- | --- |\n")
	if err := writeRows(out, fields, ""); err != nil {
		return err
	}
	out.WriteByte('\n')
	return nil
}

func writeRows(out *bytes.Buffer, fields []described, prefix string) error {
	for _, field := range fields {
		def, err := inline(field.def)
		if err != nil {
			return err
		}
		if def != "" {
			def = "`" + def + "`"
		}
		text := field.meaning()
		if field.bounds != "" {
			text += " " + field.bounds
		}
		if len(field.fields) > 0 && field.def == nil {
			fmt.Fprintf(out, "| `%s` | | | %s |\n", prefix+field.name, cell(text))
			if err := writeRows(out, field.fields, prefix+field.name+"."); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", prefix+field.name, field.kind, def, cell(text))
	}
	return nil
}

// meaning is the description without the default, which stands beside it.
func (d described) meaning() string {
	text, _, _ := strings.Cut(d.description, " Default: ")
	if rest := reason(d.description); rest != "" {
		text += " " + rest
	}
	return text
}

// reason keeps what a description says about its default beyond the value.
func reason(description string) string {
	_, def, ok := strings.Cut(description, "Default: ")
	if !ok {
		return ""
	}
	_, why, ok := strings.Cut(def, ", ")
	if !ok || strings.Contains(def, "/healthz") {
		return ""
	}
	return "By default " + why
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func writeGates(out *bytes.Buffer, section described) {
	fmt.Fprintf(out, "## featureGates\n\n%s\n`AllAlpha` and `AllBeta` set all gates of a stage that are not set themselves.\n\n", section.meaning())
	out.WriteString("| gate | stage | default |\n| --- | --- | --- |\n")
	for _, gate := range schema.FeatureGates() {
		def := "off"
		if gate.Default {
			def = "on"
		}
		if gate.Locked {
			def += ", locked"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", gate.Name, gate.Stage, def)
	}
	out.WriteByte('\n')
}

func writeControllers(out *bytes.Buffer, section described) error {
	fmt.Fprintf(out, "## controllers\n\n%s\n\n", section.meaning())
	var common []described
	aliases := aliasNames()
	for _, field := range section.fields {
		if field.name == "startInterval" {
			if err := writeTable(out, []described{field}); err != nil {
				return err
			}
			continue
		}
		if common == nil {
			common = field.fields[:3]
			out.WriteString("Every section has these:\n\n")
			shown := append([]described{}, common...)
			for i := range shown {
				shown[i].def = nil
			}
			shown[1].bounds = ""
			if err := writeTable(out, shown); err != nil {
				return err
			}
		}
		if field.alias {
			continue
		}
		def := map[string]string{"true": "on", "false": "off"}[field.fields[0].def.Value]
		text := strings.NewReplacer(" Off by default.", "", " and is off by default.", ".").Replace(field.description)
		fmt.Fprintf(out, "### %s\n\n%s By default %s, with %s", field.name, text, def, count(field.fields[1].def.Value))
		if most := field.fields[1].bounds; !strings.HasSuffix(most, " to 10000.") {
			fmt.Fprintf(out, " (%s)", strings.TrimSuffix(most, "."))
		}
		out.WriteString(".")
		if names := aliases[field.name]; len(names) > 0 {
			fmt.Fprintf(out, " Alias: `%s`.", strings.Join(names, "`, `"))
		}
		out.WriteString("\n\n")
		if own := field.fields[3:]; len(own) > 0 {
			if err := writeTable(out, own); err != nil {
				return err
			}
		}
	}
	// One newline at the end of the file.
	out.Truncate(len(bytes.TrimRight(out.Bytes(), "\n")))
	out.WriteByte('\n')
	return nil
}

func count(workers string) string {
	if workers == "1" {
		return "1 worker"
	}
	return workers + " workers"
}

func aliasNames() map[string][]string {
	names := map[string][]string{}
	for _, section := range schema.NewScheme().SectionTypes() {
		names[section.Name] = section.Aliases
	}
	return names
}
