package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The API server writes an entry in pieces, of which a reader may see the first alone.
func TestPositionIsBehindACompleteEntry(t *testing.T) {
	const first, second = `{"auditID":"1"}` + "\n", `{"auditID":"2"}` + "\n"
	long := `{"auditID":"3","requestURI":"` + strings.Repeat("x", 200<<10) + `"}` + "\n"
	for name, test := range map[string]struct {
		log      string
		position int
	}{
		"empty":                {"", 0},
		"a part of an entry":   {first[:5], 0},
		"an entry":             {first, len(first)},
		"and a part":           {first + second[:3], len(first)},
		"two entries":          {first + second, len(first + second)},
		"a part over chunks":   {first + long[:len(long)-1], len(first)},
		"an entry over chunks": {first + long, len(first + long)},
	} {
		t.Run(name, func(t *testing.T) {
			log := &AuditLog{path: filepath.Join(t.TempDir(), "audit.log")}
			if at, err := log.Position(); err != nil || at != 0 {
				t.Errorf("without a file: position %d, error %v", at, err)
			}
			if err := log.complete(); err != nil {
				t.Errorf("without a file: %v", err)
			}
			if err := os.WriteFile(log.path, []byte(test.log), 0o600); err != nil {
				t.Fatal(err)
			}
			at, err := log.Position()
			if err != nil || at != AuditPosition(test.position) {
				t.Errorf("position %d, error %v; want %d", at, err, test.position)
			}
			// A next API server writes on behind what is complete.
			if err := log.complete(); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(log.path)
			if err != nil || string(content) != test.log[:test.position] {
				t.Errorf("complete left %d bytes, error %v; want %d", len(content), err, test.position)
			}
			if err := os.WriteFile(log.path, append(content, second...), 0o600); err != nil {
				t.Fatal(err)
			}
			entries, end, err := log.Entries(at)
			if err != nil || len(entries) != 1 || entries[0].AuditID != "2" || end != at+AuditPosition(len(second)) {
				t.Errorf("from there on: %v up to %d, error %v", entries, end, err)
			}
		})
	}
}
