// Command reference writes what is derived from the configuration's types: the
// descriptions that schema embeds, the JSON Schema, the reference page and the
// file of all defaults.
//
// "reference describe" reads the doc comments, "reference write" writes the rest from
// the descriptions compiled in, "reference check" fails when any of it is out of date.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// output is one generated file.
type output struct {
	path string // from the module's root
	make func(root string) ([]byte, error)
}

var (
	description = output{"schema/descriptions.json", describe}
	derived     = []output{
		{"docs/reference/controller-manager.schema.json", func(string) ([]byte, error) { return schema.NewScheme().JSONSchema() }},
		{"docs/reference/configuration.md", page},
		{"controller-manager.yaml", defaultsFile},
	}
)

func run(args []string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return errors.New("expected one of describe, write, check")
	}
	switch args[0] {
	case "describe":
		return write(root, description)
	case "write":
		for _, one := range derived {
			if err := write(root, one); err != nil {
				return err
			}
		}
		return nil
	case "check":
		var stale []error
		for _, one := range append([]output{description}, derived...) {
			stale = append(stale, check(root, one))
		}
		return errors.Join(stale...)
	}
	return fmt.Errorf("unknown command %q, expected one of describe, write, check", args[0])
}

func write(root string, one output) error {
	content, err := one.make(root)
	if err != nil {
		return fmt.Errorf("make %s: %w", one.path, err)
	}
	path := filepath.Join(root, one.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

func check(root string, one output) error {
	want, err := one.make(root)
	if err != nil {
		return fmt.Errorf("make %s: %w", one.path, err)
	}
	have, err := os.ReadFile(filepath.Join(root, one.path))
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("%s is out of date; run go generate ./schema", one.path)
	}
	return nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = parent
	}
}
