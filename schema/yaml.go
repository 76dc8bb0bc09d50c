package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxFileSize of a configuration or manifest, in bytes.
	MaxFileSize = 1 << 20
	// maxValues and maxDepth bound what a file may expand to through its anchors.
	maxValues = 20_000
	maxDepth  = 50
)

// parseYAML reads one YAML document; wanted says what belongs into an empty one. It
// returns no tree when the text cannot be understood at all.
func parseYAML(path string, data []byte, wanted string) (*tree, Errors) {
	file := Origin{Layer: "file", Source: path}
	whole := func(format string, args ...any) (*tree, Errors) {
		return nil, Errors{{Origin: file, Message: fmt.Sprintf(format, args...)}}
	}
	if len(data) > MaxFileSize {
		return whole("has %d bytes; at most %d are read", len(data), MaxFileSize)
	}
	if offset := notText(data); offset >= 0 {
		return whole("is not UTF-8 text: byte 0x%02x at offset %d", data[offset], offset)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && isNull(&document) {
		return whole("is empty; expected %s", wanted)
	}
	if err != nil {
		return nil, Errors{syntaxError(file, data, err)}
	}
	reader := treeReader{file: file, open: map[*yaml.Node]bool{}}
	root := reader.read(&document, 0)
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		reader.errs = append(reader.errs, syntaxError(file, data, err))
	default:
		at := file
		at.Line, at.Column = second.Line, second.Column
		reader.errs = append(reader.errs, Error{Origin: at, Message: "a second document starts here; expected one document in the file"})
	}
	return root, reader.errs
}

func isNull(document *yaml.Node) bool {
	return len(document.Content) == 0 || document.Content[0].Kind == yaml.ScalarNode && document.Content[0].ShortTag() == "!!null"
}

// notText returns the offset of the first byte that no text file has, or -1.
func notText(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

var (
	yamlLine      = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxError finds where the text stops being YAML. The parser tells at best the
// line where the broken construct begins; the line where it gave up is the first up
// to which the text fails in the same way.
func syntaxError(file Origin, data []byte, err error) Error {
	message, began := err.Error(), 0
	if found := yamlLine.FindStringSubmatch(message); found != nil {
		began, _ = strconv.Atoi(found[1]) // empty when the parser tells no line
		message = found[2]
	}
	if strings.HasPrefix(message, "did not find expected") {
		began++ // the parser, unlike its scanner, counts lines from 0
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	line := failingLine(lines, err)
	switch {
	case began == 0 || began > len(lines):
		began = line
	case strings.Contains(message, "end of stream"), strings.Contains(message, "expected ',' or"):
		line = began // what is never closed is at fault where it was opened
	}
	at := file
	at.Line = line
	source := string(lines[line-1])
	indent := len(source) - len(strings.TrimLeft(source, " \t"))
	at.Column = indent + 1
	hint := ""
	tab := strings.IndexByte(source[:indent], '\t')
	control := strings.IndexFunc(source, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' })
	switch anchor := unknownAnchor.FindStringSubmatch(message); {
	case anchor != nil:
		if column := strings.Index(source, "*"+anchor[1]); column >= 0 {
			at.Column = column + 1
		}
	case tab >= 0:
		at.Column = tab + 1
		hint = "; the line is indented with a tab, use spaces"
	case control >= 0:
		at.Column = control + 1
	case strings.Contains(message, "end of stream"):
		hint = "; a quote opened in this line is never closed"
	case strings.HasPrefix(message, "mapping values are not allowed"):
		hint = "; is a ':' missing in the line above, or does a value with ': ' need quotes?"
	}
	if began < line {
		hint += fmt.Sprintf(" (in what begins in line %d)", began)
	}
	return Error{Origin: at, Message: "is not valid YAML: " + message + hint}
}

// failingLine returns the first line with which the text fails as the whole does.
func failingLine(lines [][]byte, err error) int {
	low, high := 1, len(lines)
	for low < high {
		middle := (low + high) / 2
		if sameFailure(bytes.Join(lines[:middle], nil), err) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func sameFailure(data []byte, want error) bool {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil {
			return err.Error() == want.Error()
		}
	}
}

// treeReader turns YAML nodes into a tree: it follows aliases and merge keys
// within bounds and reports what YAML allows but a configuration does not.
type treeReader struct {
	file   Origin
	open   map[*yaml.Node]bool
	values int
	full   bool
	errs   Errors
}

func (r *treeReader) at(n *yaml.Node) Origin {
	at := r.file
	at.Line, at.Column = n.Line, n.Column
	return at
}

func (r *treeReader) fault(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, Error{Origin: r.at(n), Message: fmt.Sprintf(format, args...)})
}

func (r *treeReader) read(n *yaml.Node, depth int) *tree {
	t := &tree{at: r.at(n), value: rejected{}}
	r.values++
	switch {
	case r.full:
		return t
	case r.values > maxValues:
		r.full = true
		r.fault(n, "has more than %d values, anchors resolved; a configuration needs far fewer", maxValues)
		return t
	case depth > maxDepth:
		r.fault(n, "is nested deeper than %d levels", maxDepth)
		return t
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.read(n.Content[0], depth)
	case yaml.AliasNode:
		if r.open[n.Alias] {
			r.fault(n, "the anchor %s contains itself", show(n.Value))
			return t
		}
		// The place of an alias is where it is used.
		resolved := *r.read(n.Alias, depth+1)
		resolved.at = t.at
		return &resolved
	case yaml.ScalarNode:
		return r.scalar(n, t)
	}
	r.open[n] = true
	defer delete(r.open, n)
	if tag := n.ShortTag(); tag != "!!map" && tag != "!!seq" {
		r.fault(n, "the YAML tag %s is not supported", show(tag))
		return t
	}
	if n.Kind == yaml.SequenceNode {
		items := make([]*tree, 0, len(n.Content))
		for _, item := range n.Content {
			items = append(items, r.read(item, depth+1))
		}
		t.value = items
		return t
	}
	t.value = r.entries(n, depth)
	return t
}

// entries reads a mapping. Merged entries come last, without those that the
// mapping has itself; duplicate keys are left for the decoder, which knows names.
func (r *treeReader) entries(n *yaml.Node, depth int) []entry {
	entries := []entry{}
	own := map[string]bool{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			r.fault(n.Content[i], "a key must be a string, got a mapping or list")
			continue
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		own[key.Value] = true
		entries = append(entries, entry{key: key.Value, at: r.at(n.Content[i]), value: r.read(value, depth+1)})
	}
	for _, merge := range merges {
		for _, merged := range r.merged(merge, depth) {
			if !own[merged.key] {
				own[merged.key] = true
				entries = append(entries, merged)
			}
		}
	}
	return entries
}

// merged returns what a merge key brings; of several mappings the earlier wins.
func (r *treeReader) merged(n *yaml.Node, depth int) []entry {
	t := r.read(n, depth+1)
	switch value := t.value.(type) {
	case []entry:
		return value
	case []*tree:
		var entries []entry
		for _, item := range value {
			fields, ok := item.value.([]entry)
			if !ok {
				r.errs = append(r.errs, Error{Origin: item.at, Message: "a merge key (<<) takes mappings, got " + item.describe()})
				continue
			}
			entries = append(entries, fields...)
		}
		return entries
	case rejected:
	default:
		r.errs = append(r.errs, Error{Origin: t.at, Message: "a merge key (<<) takes a mapping, got " + t.describe()})
	}
	return nil
}

func (r *treeReader) scalar(n *yaml.Node, t *tree) *tree {
	t.written = n.Value
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp":
		t.value = n.Value
		return t
	case "!!null":
		t.value = nil
		return t
	case "!!bool", "!!int", "!!float":
		if tag == "!!int" && strings.HasPrefix(strings.TrimLeft(n.Value, "+-"), "0o") {
			// An octal number of YAML 1.2 is a string in YAML 1.1, which most writers
			// follow and so leave without quotes.
			t.value = n.Value
			return t
		}
		if err := n.Decode(&t.value); err != nil {
			t.value = rejected{}
			r.fault(n, "%s is not what its YAML tag %s says", show(n.Value), tag)
			return t
		}
		if whole, ok := t.value.(int); ok {
			t.value = int64(whole)
		}
		return t
	default:
		r.fault(n, "the YAML tag %s is not supported", show(tag))
		return t
	}
}
