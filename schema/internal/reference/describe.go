package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// structure is a struct type as its source declares it.
type structure struct {
	doc    *ast.CommentGroup
	fields []*ast.Field
}

// describe collects the doc comments of the types that make up the configuration:
// those reached from its root and from every section.
func describe(root string) ([]byte, error) {
	declared, err := structures(filepath.Join(root, "schema"))
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for name, structure := range declared {
		if name == "ControllerManagerConfiguration" || structure.embeds("ControllerSettings") {
			if err := describeType(name, declared, texts); err != nil {
				return nil, err
			}
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(texts)
	return out.Bytes(), err
}

func structures(dir string) (map[string]structure, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	found := map[string]structure{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if named, ok := spec.(*ast.TypeSpec); ok {
					if typed, ok := named.Type.(*ast.StructType); ok {
						found[named.Name.Name] = structure{doc: general.Doc, fields: typed.Fields.List}
					}
				}
			}
		}
	}
	return found, nil
}

func (s structure) embeds(name string) bool {
	for _, field := range s.fields {
		if identifier, ok := field.Type.(*ast.Ident); ok && len(field.Names) == 0 && identifier.Name == name {
			return true
		}
	}
	return false
}

// describeType takes the doc comments of a type, of its fields and of their types.
func describeType(name string, declared map[string]structure, texts map[string]string) error {
	described, ok := declared[name]
	if _, before := texts[name]; before || !ok {
		return nil
	}
	names := map[string]string{} // JSON name by Go name
	for _, field := range described.fields {
		if json := jsonName(field); json != "" && len(field.Names) == 1 {
			names[field.Names[0].Name] = json
		}
	}
	text := words(described.doc, names)
	if text == "" {
		return fmt.Errorf("type %s has no doc comment", name)
	}
	texts[name] = withoutSubject(text, name)
	for _, field := range described.fields {
		if len(field.Names) == 1 && names[field.Names[0].Name] != "" {
			owner := name + "." + field.Names[0].Name
			text := words(field.Doc, names)
			if text == "" {
				return fmt.Errorf("field %s has no doc comment", owner)
			}
			texts[owner] = withoutSubject(text, field.Names[0].Name, names[field.Names[0].Name])
		}
		if err := describeType(typeName(field.Type), declared, texts); err != nil {
			return err
		}
	}
	return nil
}

// typeName is the name of a type of this package, below pointers and lists.
func typeName(expression ast.Expr) string {
	switch typed := expression.(type) {
	case *ast.Ident:
		return typed.Name
	case *ast.StarExpr:
		return typeName(typed.X)
	case *ast.ArrayType:
		return typeName(typed.Elt)
	}
	return ""
}

func jsonName(field *ast.Field) string {
	if field.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

var subject = regexp.MustCompile(`^(\w+) ([a-z]+s|are) `)

// withoutSubject drops the name that a doc comment begins with, and an "is" after it:
// in the reference it stands beside the text.
func withoutSubject(text string, names ...string) string {
	found := subject.FindStringSubmatch(text)
	if found == nil || !slices.Contains(names, found[1]) {
		return text
	}
	text = strings.TrimPrefix(text, found[1]+" ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	return strings.ToUpper(text[:1]) + text[1:]
}

var identifier = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*[a-z][A-Z][A-Za-z0-9]*\b`)

// words is a doc comment in one line, with the file's names for the type's fields.
func words(doc *ast.CommentGroup, names map[string]string) string {
	if doc == nil {
		return ""
	}
	var parsed comment.Parser
	var printer comment.Printer
	printer.TextWidth = -1
	text := string(printer.Text(parsed.Parse(doc.Text())))
	text = strings.Join(strings.Fields(text), " ")
	return identifier.ReplaceAllStringFunc(text, func(word string) string {
		if name, ok := names[word]; ok {
			return name
		}
		return word
	})
}
