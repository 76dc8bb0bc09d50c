package runtime

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/server"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// The newest file comes first, whichever was done with first.
func TestReloadsAreListedByWhenTheyWereFound(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := newReloadLog(func() time.Time { return start.Add(10 * time.Second) })
	found := func(digest string, after time.Duration, result server.Result) server.Reload {
		return server.Reload{At: start.Add(after), Digest: digest, Result: result}
	}
	listed := func(want string) {
		t.Helper()
		got := ""
		for _, r := range l.newestFirst() {
			got += r.Digest + " " + string(r.Result) + " " + r.Took.String() + "; "
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	l.add(found("a", 0, server.Applied))
	l.begin(found("b", time.Second, ""))
	l.add(found("c", 2*time.Second, server.Rejected))
	listed("c rejected 0s; b applying 9s; a applied 0s; ")
	l.add(found("b", time.Second, server.Applied))
	listed("c rejected 0s; b applied 0s; a applied 0s; ")
	for range reloadsKept {
		l.add(found("d", 3*time.Second, server.Applied))
	}
	if kept := len(l.newestFirst()); kept != reloadsKept {
		t.Errorf("%d reloads are kept, want %d", kept, reloadsKept)
	}
}

// Each error is said at the line of the setting that it names.
func TestErrorsOfAPartHaveTheirLines(t *testing.T) {
	origins := map[string]schema.Origin{
		"logging.level":           {Line: 1},
		"server.bindAddress":      {Line: 10},
		"server.port":             {Line: 11},
		"server.tls.certFile":     {Line: 12},
		"server.tls.clientCAFile": {Line: 13},
		"server.profiling":        {Layer: "default"},
	}
	pair := fmt.Errorf("server.tls.certFile a, keyFile b: %w", errors.Join(errors.New("no a"), errors.New("no b")))
	err := errors.Join(nil, errors.Join(pair, errors.New("server.tls.clientCAFile c: bad")), errors.New("server.port: used"),
		errors.New("server.portable: not a setting"), errors.New("server.profiling: not in the file"))
	var lines []int
	for _, err := range unjoined(err) {
		lines = append(lines, originOf(origins, "server", err).Line)
	}
	if want := []int{12, 13, 11, 10, 10}; !slices.Equal(lines, want) {
		t.Errorf("lines %v, want %v", lines, want)
	}
	if got := originOf(origins, "cluster.client", pair); got.Line != 0 {
		t.Errorf("got %+v for a part of which nothing is in the file", got)
	}
}
