package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// width of the comments in the file of defaults.
const width = 100

// defaultsFile writes the complete default configuration with comments.
func defaultsFile(string) ([]byte, error) {
	root, err := properties()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	writeComment(&out, "", "The complete default configuration of controller-manager. Every key but apiVersion and kind may be "+
		"left out. Made from the types by go generate ./schema; do not edit. To have completion and checks in your "+
		"editor, keep the next line.")
	out.WriteString("# yaml-language-server: $schema=docs/reference/controller-manager.schema.json\n")
	fmt.Fprintf(&out, "apiVersion: %s\nkind: %s\n", schema.APIVersion, schema.Kind)
	for _, section := range root {
		if section.name == "apiVersion" || section.name == "kind" {
			continue
		}
		out.WriteByte('\n')
		writeComment(&out, "", section.meaning())
		switch {
		case section.name == "controllers":
			err = writeSections(&out, section)
		case section.def != nil:
			err = writeValue(&out, section, "")
		default:
			err = writeObject(&out, section, "")
		}
		if err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func writeComment(out *bytes.Buffer, indent, text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len(line)+len(word)+3 > width {
			fmt.Fprintf(out, "%s# %s\n", indent, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	fmt.Fprintf(out, "%s# %s\n", indent, line)
}

func writeObject(out *bytes.Buffer, object described, indent string) error {
	fmt.Fprintf(out, "%s%s:\n", indent, object.name)
	return writeFields(out, object.fields, indent+"  ")
}

func writeFields(out *bytes.Buffer, fields []described, indent string) error {
	return writeNewFields(out, fields, indent, map[string]bool{})
}

// writeNewFields explains each field of a section once: some sections have the
// same few fields several times.
func writeNewFields(out *bytes.Buffer, fields []described, indent string, explained map[string]bool) error {
	for _, field := range fields {
		text := field.meaning()
		if field.bounds != "" && strings.HasPrefix(field.bounds, "One of") && len(field.bounds) < width {
			text += " " + strings.ReplaceAll(field.bounds, "`", "")
		}
		if !explained[field.name+text] {
			writeComment(out, indent, text)
		}
		explained[field.name+text] = true
		var err error
		if field.def != nil {
			err = writeValue(out, field, indent)
		} else {
			fmt.Fprintf(out, "%s%s:\n", indent, field.name)
			err = writeNewFields(out, field.fields, indent+"  ", explained)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writeValue(out *bytes.Buffer, field described, indent string) error {
	value, err := inline(field.def)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s%s: %s\n", indent, field.name, value)
	return nil
}

// writeSections comments on a section's own fields only: those of all sections are
// explained once.
func writeSections(out *bytes.Buffer, controllers described) error {
	out.WriteString("controllers:\n")
	aliases := aliasNames()
	explained := false
	for _, field := range controllers.fields {
		switch {
		case field.alias:
			continue
		case field.def != nil:
			if err := writeFields(out, []described{field}, "  "); err != nil {
				return err
			}
			continue
		}
		out.WriteByte('\n')
		if !explained {
			explained = true
			writeComment(out, "  ", "Every section has enabled and workers, how many keys are reconciled at once. To bound one controller's "+
				"requests in place of cluster.client, give its section a client:")
			out.WriteString("  #   client: {qps: 20, burst: 30}\n\n")
		}
		text := field.meaning()
		if names := aliases[field.name]; len(names) > 0 {
			text += " Alias: " + strings.Join(names, ", ") + "."
		}
		writeComment(out, "  ", text)
		fmt.Fprintf(out, "  %s:\n", field.name)
		for _, shared := range field.fields[:2] {
			if err := writeValue(out, shared, "    "); err != nil {
				return err
			}
		}
		if err := writeFields(out, field.fields[3:], "    "); err != nil {
			return err
		}
	}
	return nil
}
