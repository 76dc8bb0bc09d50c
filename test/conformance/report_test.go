package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spec is a test in ginkgo's report.
func spec(kind, state, name string) map[string]any {
	return map[string]any{
		"ContainerHierarchyTexts": []string{"[sig-apps]"}, "LeafNodeText": name, "LeafNodeType": kind, "State": state,
		"Failure": map[string]any{"Message": "it broke\nat length"},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	known := map[string]string{"[sig-apps] runs a command": "it needs a container"}
	for _, test := range []struct {
		name  string
		specs []map[string]any
		fails string
		says  []string
	}{
		{"all passed", []map[string]any{spec("It", "passed", "a"), spec("It", "skipped", "b")}, "", []string{"1 passed, 0 failed, 0 need"}},
		{"none was run", []map[string]any{spec("It", "skipped", "a"), spec("SynchronizedBeforeSuite", "passed", "")}, "no test was run", nil},
		{"one failed", []map[string]any{spec("It", "passed", "a"), spec("It", "failed", "b")}, "1 tests failed",
			[]string{"FAILED: [sig-apps] b", "it broke", "1 passed, 1 failed"}},
		{"one timed out", []map[string]any{spec("It", "timedout", "b")}, "1 tests failed", []string{"TIMEDOUT: [sig-apps] b"}},
		{"the suite could not begin", []map[string]any{spec("SynchronizedBeforeSuite", "failed", "")}, "1 tests failed", nil},
		{"a known one failed", []map[string]any{spec("It", "passed", "a"), spec("It", "failed", "runs a command")}, "",
			[]string{"1 passed, 0 failed, 1 need real containers"}},
		{"a known one passed", []map[string]any{spec("It", "passed", "runs a command")}, "",
			[]string{"passes, though containers.txt names it: [sig-apps] runs a command"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			content, err := json.Marshal([]any{map[string]any{"SpecReports": test.specs}})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "report.json")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err = judge(&out, path, known)
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
			for _, says := range test.says {
				if !strings.Contains(out.String(), says) {
					t.Errorf("it says %q, want %q", out.String(), says)
				}
			}
		})
	}
}

func TestJudgeNeedsAReport(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.json")
	if err := judge(&strings.Builder{}, path, nil); err == nil {
		t.Error("a report that does not exist is accepted")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := judge(&strings.Builder{}, path, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error of a broken report: %v", err)
	}
}

// Each test that is excused is named with a reason.
func TestKnown(t *testing.T) {
	t.Parallel()
	known, err := readKnown()
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		if !strings.HasPrefix(name, "[sig-") || !strings.Contains(name, "[Conformance]") {
			t.Errorf("%q is not the name of a Conformance test", name)
		}
	}
}
