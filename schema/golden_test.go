package schema_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

// load reads a file over the defaults, as the daemon does, and returns all faults.
func load(t *testing.T, s *schema.Scheme, path string, data []byte) (*schema.ControllerManagerConfiguration, schema.Errors) {
	t.Helper()
	layer, errs := s.DecodeFile(path, data)
	config, more := build(t, s, layer)
	return config, append(errs, more...)
}

// build merges layers over the defaults.
func build(t *testing.T, s *schema.Scheme, layers ...schema.Layer) (*schema.ControllerManagerConfiguration, schema.Errors) {
	t.Helper()
	layers = append([]schema.Layer{s.DefaultLayer()}, layers...)
	merged := koanf.New(".")
	for _, layer := range layers {
		if err := merged.Load(confmap.Provider(layer.Values, ""), nil); err != nil {
			t.Fatalf("merge: %v", err)
		}
	}
	return s.Build(merged.Raw(), schema.MergeOrigins(layers...))
}

// Every bad file has its complete list of errors beside it.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 60 {
		t.Fatalf("found %d bad files, want at least 60", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, errs := load(t, s, filepath.Base(file), data)
			if len(errs) == 0 {
				t.Fatal("accepted")
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			have := errs.Error() + "\n"
			if *update {
				if err := os.WriteFile(golden, []byte(have), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if have != string(want) {
				t.Errorf("errors:\n%s\nwant:\n%s", have, want)
			}
		})
	}
}
