package schema

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Conversion is a configuration made from a command line of kube-controller-manager.
type Conversion struct {
	// File is the configuration as YAML: what differs from the defaults, with the
	// flag that it comes from beside each value.
	File []byte
	// Dropped are the flags that could not be carried over.
	Dropped []Note
	// Notes are about flags that were carried over and behave differently, and
	// about defaults of kube-controller-manager that differ.
	Notes []Note
}

// ConvertCommandLine makes a configuration from the arguments of
// kube-controller-manager 1.25 to 1.37, with or without the program's name in
// front. Every flag is either carried over or listed; the error is about
// arguments that are not flags, and about values that are not valid together.
func (s *Scheme) ConvertCommandLine(args []string) (Conversion, error) {
	for i, arg := range args {
		if notText([]byte(arg)) >= 0 {
			return Conversion{}, fmt.Errorf("argument %d is not UTF-8 text", i+1)
		}
	}
	line, err := parseFlags(args)
	if err != nil {
		return Conversion{}, err
	}
	c := newConversion(false)
	settings := peerSettings()
	for _, setting := range settings {
		flag := line.flags[setting.flag]
		if flag == nil || len(flag.values) == 0 {
			continue
		}
		value, err := flag.value(setting)
		if err != nil {
			c.dropped = append(c.dropped, Note{Flag: setting.id(), Message: err.Error() + "; kube-controller-manager refuses it too"})
			continue
		}
		c.given[setting.id()] = given{setting: setting, value: value, at: Origin{Layer: "flag", Source: setting.id()}}
	}
	c.run(settings)
	c.dropRemoved(line)

	layer, errs := s.checked(c.layer)
	base := s.DefaultLayer()
	merged := base.Values
	merge(merged, layer.Values)
	_, more := s.Build(merged, MergeOrigins(base, layer))
	if errs = append(errs, more...); len(errs) > 0 {
		return Conversion{}, errs
	}
	conversion := Conversion{Dropped: c.dropped, Notes: c.notes}
	conversion.File, err = s.writeFile(layer, conversion)
	return conversion, err
}

// dropRemoved lists the flags that 1.37 does not have.
func (c *conversion) dropRemoved(line commandLine) {
	for _, removed := range removedFlags() {
		if flag := line.flags[removed.flag]; flag != nil && len(flag.values) > 0 {
			c.dropped = append(c.dropped, Note{Flag: "--" + removed.flag,
				Message: fmt.Sprintf("removed from kube-controller-manager in %s; %s", removed.version, removed.remedy)})
		}
	}
	var names []string
	for _, setting := range peerSettings() {
		if setting.flag != "" {
			names = append(names, setting.flag)
		}
	}
	for _, name := range line.unknown {
		flag := "--" + name
		if !simpleKey.MatchString(name) {
			flag = strconv.QuoteToASCII(flag[:min(len(flag), 80)]) // the note stands in a comment, which takes no control characters
		}
		c.dropped = append(c.dropped, Note{Flag: flag,
			Message: "not a flag of kube-controller-manager 1.25 to 1.37" + didYouMean(name, names)})
	}
}

// writeFile writes the values of a layer that differ from the defaults, in the
// order of the types.
func (s *Scheme) writeFile(layer Layer, conversion Conversion) ([]byte, error) {
	var head strings.Builder
	head.WriteString("Made by \"controller-manager config convert\" from a command line of kube-controller-manager.\n" +
		"Only what differs from the defaults is written.\n")
	list := func(title string, notes []Note) {
		if len(notes) > 0 {
			head.WriteString("\n" + title + "\n")
		}
		for _, note := range notes {
			head.WriteString("  " + strings.Join(strings.Fields(note.String()), " ") + "\n")
		}
	}
	list("Not carried over:", conversion.Dropped)
	list("Carried over with a difference:", conversion.Notes)

	root := mappingNode()
	addString(root, "apiVersion", APIVersion, "")
	addString(root, "kind", Kind, "")
	addDifferences(root, s.root, layer.Values, s.DefaultLayer().Values, "", layer.Origins)
	var out bytes.Buffer
	for line := range strings.SplitSeq(strings.TrimSuffix(head.String(), "\n"), "\n") {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	out.WriteByte('\n')
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return out.Bytes(), nil
}

func mappingNode() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"} }

func addString(to *yaml.Node, key, value, comment string) {
	var k, v yaml.Node
	k.SetString(key)
	v.SetString(value)
	v.LineComment = comment
	to.Content = append(to.Content, &k, &v)
}

func addDifferences(to *yaml.Node, s *shape, values, defaults map[string]any, path string, origins map[string]Origin) {
	for _, f := range s.fields {
		value, given := values[f.name]
		at := join(path, f.name)
		switch below, isMap := value.(map[string]any); {
		case !given:
		case isMap:
			child := mappingNode()
			under, _ := defaults[f.name].(map[string]any)
			addDifferences(child, f.shape.entries(below), below, under, at, origins)
			addNode(to, f.name, child, "")
		case reflect.DeepEqual(value, defaults[f.name]):
		default:
			var node yaml.Node
			if err := node.Encode(value); err != nil {
				continue // values are scalars, lists and maps of them, which all encode
			}
			comment := ""
			if origin, ok := origins[at]; ok {
				comment = origin.Source
			}
			if node.Kind == yaml.SequenceNode {
				node.Style = yaml.FlowStyle
			}
			addNode(to, f.name, &node, comment)
		}
	}
}

// entries describes a mapping with the given keys like an object with these fields.
func (s *shape) entries(values map[string]any) *shape {
	if s.kind != mapping {
		return s
	}
	described := &shape{kind: object}
	for _, key := range sortedKeys(values) {
		described.fields = append(described.fields, &field{name: key, shape: s.elem})
	}
	return described
}

func addNode(to *yaml.Node, key string, node *yaml.Node, comment string) {
	if node.Kind == yaml.MappingNode && len(node.Content) == 0 {
		return
	}
	var k yaml.Node
	k.SetString(key)
	node.LineComment = comment
	to.Content = append(to.Content, &k, node)
}
