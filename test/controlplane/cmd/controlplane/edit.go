package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// edit replaces values of a YAML document by path and leaves everything else,
// comments and blank lines included, as it is. The new values are YAML. Only
// values that stand on one line are replaced.
func edit(document []byte, values map[string]string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, err
	}
	lines := bytes.Split(document, []byte("\n"))
	for path, value := range values {
		key, node := find(&root, strings.Split(path, "."))
		if node == nil {
			return nil, fmt.Errorf("it has no %s", path)
		}
		if node.Line != key.Line || (node.Kind != yaml.ScalarNode && node.Style&yaml.FlowStyle == 0) {
			return nil, fmt.Errorf("line %d: the value of %s is not on one line", node.Line, path)
		}
		line := lines[node.Line-1]
		lines[node.Line-1] = slices.Concat(line[:node.Column-1], []byte(value))
	}
	return bytes.Join(lines, []byte("\n")), nil
}

// find returns the key and the value at path; nil when there is none.
func find(node *yaml.Node, path []string) (key, value *yaml.Node) {
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		return find(node.Content[0], path)
	}
	if node.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != path[0] {
			continue
		}
		if len(path) == 1 {
			return node.Content[i], node.Content[i+1]
		}
		return find(node.Content[i+1], path[1:])
	}
	return nil, nil
}
