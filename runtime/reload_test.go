package runtime

import (
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/server"
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
