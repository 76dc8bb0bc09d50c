package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// result of one test, as ginkgo reports it.
type result struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Leaf       string   `json:"LeafNodeText"`
	Kind       string   `json:"LeafNodeType"`
	State      string   `json:"State"`
	RunTime    int64    `json:"RunTime"`
	Failure    struct{ Message string }
}

func (r result) name() string { return strings.Join(append(slices.Clone(r.Containers), r.Leaf), " ") }

// readReport returns the tests that were run.
func readReport(path string) ([]result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the report of the tests: %w", err)
	}
	var suites []struct{ SpecReports []result }
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, fmt.Errorf("read the report of the tests %s: %w", path, err)
	}
	var ran []result
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			if r.Kind == "It" && r.State != "skipped" && r.State != "pending" || r.Kind != "It" && r.State != "passed" {
				ran = append(ran, r)
			}
		}
	}
	return ran, nil
}

// judge prints the outcome. Its error says that there were no tests, or that
// one failed that simulated nodes are no excuse for.
func judge(out io.Writer, path string, known map[string]string) error {
	ran, err := readReport(path)
	if err != nil {
		return err
	}
	passed, excused := 0, 0
	var failed, unexpected []result
	for _, r := range ran {
		_, listed := known[r.name()]
		switch {
		case r.State == "passed" && listed:
			unexpected = append(unexpected, r)
			passed++
		case r.State == "passed":
			passed++
		case listed:
			excused++
		default:
			failed = append(failed, r)
		}
	}
	for _, r := range failed {
		fmt.Fprintf(out, "%s: %s\n    %s\n", strings.ToUpper(r.State), r.name(), short(r.Failure.Message))
	}
	for _, r := range unexpected {
		fmt.Fprintf(out, "passes, though containers.txt names it: %s\n", r.name())
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d need real containers\n", passed, len(failed), excused)
	switch {
	case len(ran) == 0:
		return fmt.Errorf("no test was run; see the log")
	case len(failed) > 0:
		return fmt.Errorf("%d tests failed", len(failed))
	}
	return nil
}

//go:embed containers.txt
var containers string

// readKnown returns the tests that need real containers, with the reason. A
// line has the name of the test, a tab, and the reason.
func readKnown() (map[string]string, error) {
	known := map[string]string{}
	for number, line := range strings.Split(containers, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("containers.txt:%d: want NAME, a tab, and a reason, got %q", number+1, line)
		}
		known[name] = reason
	}
	return known, nil
}
