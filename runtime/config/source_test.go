package config

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run runs a source until the test ends or the returned function is called.
func run(t testing.TB, s *Source) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// replace writes a file as editors and the kubelet do, in one step.
func replace(t testing.TB, path, body string) {
	t.Helper()
	must(t, os.WriteFile(path+".tmp", []byte(body), 0o600))
	must(t, os.Rename(path+".tmp", path))
}

func next(t testing.TB, s *Source) Update {
	t.Helper()
	select {
	case u := <-s.Updates():
		if (u.Snapshot != nil) == (u.Rejection != nil) {
			t.Fatalf("update with %+v and %+v", u.Snapshot, u.Rejection)
		}
		return u
	case <-time.After(2 * time.Minute):
		t.Fatal("no update")
		return Update{}
	}
}

func nextSnapshot(t testing.TB, s *Source) *Snapshot {
	t.Helper()
	u := next(t, s)
	if u.Snapshot == nil {
		t.Fatalf("rejected: %v", u.Rejection.Errors)
	}
	return u.Snapshot
}

func nextRejection(t testing.TB, s *Source) *Rejection {
	t.Helper()
	u := next(t, s)
	if u.Rejection == nil {
		t.Fatalf("accepted: %+v", u.Snapshot)
	}
	return u.Rejection
}

func port(n int) string { return fmt.Sprintf("%sserver: {port: %d}\n", head, n) }

func TestEditsBecomeSnapshotsAndRejections(t *testing.T) {
	t.Parallel()
	path := file(t, "")
	s := NewSource(Options{Scheme: scheme(), Path: path, Set: []string{"reload.debounce=10ms"}})
	first, errs := s.Load()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	run(t, s)

	replace(t, path, port(1))
	good := nextSnapshot(t, s)
	if good.Config.Server.Port != 1 || good.Trigger != "event" || good.Digest == first.Digest || good.Path != path {
		t.Errorf("%+v", good)
	}
	if first.Config.Server.Port != 10257 {
		t.Error("an earlier snapshot was changed")
	}

	replace(t, path, port(-1))
	bad := nextRejection(t, s)
	if len(bad.Errors) != 1 || bad.Errors[0].Path != "server.port" || bad.Digest == "" || bad.At.IsZero() || bad.Trigger != "event" {
		t.Errorf("%+v", bad)
	}

	must(t, os.Remove(path))
	gone := nextRejection(t, s)
	if len(gone.Errors) != 1 || gone.Errors[0].Message != "does not exist" || gone.Digest != "" {
		t.Errorf("%+v", gone)
	}

	// The last good one again: nothing to do for controllers, but it clears the rejection.
	replace(t, path, port(1))
	if again := nextSnapshot(t, s); again.Digest != good.Digest || !again.LoadedAt.After(good.LoadedAt) {
		t.Errorf("%+v", again)
	}

	// Nothing was reported twice: the next update is the next edit's.
	replace(t, path, port(2))
	if next := nextSnapshot(t, s); next.Config.Server.Port != 2 {
		t.Errorf("%+v", next)
	}
}

func TestWithoutLoadTheFirstUpdateIsTheStart(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"file": file(t, ""), "no file": ""} {
		s := NewSource(Options{Scheme: scheme(), Path: path})
		stop := run(t, s)
		if got := nextSnapshot(t, s); got.Trigger != "start" || got.Path != path {
			t.Errorf("%s: %+v", name, got)
		}
		stop()
	}
	s := NewSource(Options{Scheme: scheme(), Path: filepath.Join(t.TempDir(), "missing")})
	run(t, s)
	if got := nextRejection(t, s); got.Trigger != "start" || got.Errors[0].Message != "does not exist" {
		t.Errorf("%+v", got)
	}
}

func TestTriggerLooksNowAndSaysWhenNothingChanged(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	path := file(t, "")
	s := NewSource(Options{
		Scheme: scheme(), Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Set: []string{"reload.debounce=1m"},
	})
	if _, errs := s.Load(); len(errs) > 0 {
		t.Fatal(errs)
	}
	run(t, s)
	s.Trigger()
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(log.String(), "unchanged"); {
		if time.Now().After(deadline) {
			t.Fatalf("not logged: %s", &log)
		}
		time.Sleep(time.Millisecond)
	}
	replace(t, path, port(1))
	s.Trigger() // does not wait for the debounce of a minute
	if got := nextSnapshot(t, s); got.Trigger != "signal" || got.Config.Server.Port != 1 {
		t.Errorf("%+v", got)
	}
}

func TestTriggerWithoutAFileIsHarmless(t *testing.T) {
	s := NewSource(Options{Scheme: scheme()})
	s.Trigger()
	run(t, s)
	s.Trigger()
	if got := nextSnapshot(t, s); got.Trigger != "start" {
		t.Errorf("%+v", got)
	}
}

func TestFaultsOutsideTheFileRejectEveryFile(t *testing.T) {
	t.Parallel()
	path := file(t, "")
	s := NewSource(Options{Scheme: scheme(), Path: path, Environ: []string{"WHEELHOUSE_SERVER_PORT=x"}})
	if _, errs := s.Load(); len(errs) != 1 || errs[0].Origin.Layer != "env" {
		t.Fatal(errs)
	}
	run(t, s)
	replace(t, path, port(1))
	if got := nextRejection(t, s); got.Errors[0].Origin.Layer != "env" {
		t.Errorf("%+v", got)
	}
}

// The intervals of the newest valid file hold at once, those of an invalid one do not.
func TestReloadSettingsTakeEffectLive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	edit := func(reload string, port int) {
		replace(t, path, fmt.Sprintf("%sreload: %s\nserver: {port: %d}\n", head, reload, port))
	}
	edit("{debounce: 0s, pollInterval: 10s}", 1)
	synctest.Test(t, func(t *testing.T) {
		s := newSource(Options{Scheme: scheme(), Path: path}, true)
		if _, errs := s.Load(); len(errs) > 0 {
			t.Fatal(errs)
		}
		stop := run(t, s)
		defer stop()
		took := func() time.Duration {
			start := time.Now()
			<-s.Updates()
			return time.Since(start).Round(time.Second)
		}
		time.Sleep(time.Second) // Run's own first look is over
		edit("{debounce: 20s, pollInterval: 100s}", 2)
		if got := took(); got != 9*time.Second {
			t.Errorf("taken after %s, want after the poll interval of 10s", got)
		}
		synctest.Wait()
		edit("{debounce: -1s, pollInterval: 1s}", 3)
		if got := took(); got != 120*time.Second {
			t.Errorf("taken after %s, want after the poll interval of 100s and the debounce of 20s", got)
		}
		synctest.Wait()
		edit("{debounce: 20s, pollInterval: 0s}", 4)
		if got := took(); got > 120*time.Second || got < 100*time.Second {
			t.Errorf("taken after %s, want the intervals of the last valid file", got)
		}
		synctest.Wait()
		edit("{}", 5)
		select {
		case u := <-s.Updates():
			t.Errorf("%+v though polling is off", u)
		case <-time.After(time.Hour):
		}
	})
}

func TestNothingIsLostBehindAnother(t *testing.T) {
	snapshot := func(digest string) Update { return Update{Snapshot: &Snapshot{Digest: digest}} }
	rejection := func(digest string) Update { return Update{Rejection: &Rejection{Digest: digest}} }
	name := func(u Update) string {
		if u.Snapshot != nil {
			return u.Snapshot.Digest
		}
		return u.Rejection.Digest
	}
	for _, test := range []struct {
		name  string
		added []Update
		want  string
	}{
		{"nothing", nil, ""},
		{"newer snapshot", []Update{snapshot("s1"), snapshot("s2")}, "s2"},
		{"newer rejection", []Update{rejection("r1"), rejection("r2")}, "r2"},
		{"rejection after snapshot", []Update{snapshot("s1"), rejection("r1")}, "s1 r1"},
		{"snapshot after rejection", []Update{rejection("r1"), snapshot("s1")}, "r1 s1"},
		{"mixed", []Update{snapshot("s1"), rejection("r1"), snapshot("s2"), rejection("r2"), snapshot("s3")}, "r2 s3"},
	} {
		w := newWaiting()
		for _, u := range test.added {
			w.add(u)
		}
		var got []string
		for u, ok := w.first(); ok; u, ok = w.first() {
			got = append(got, name(u))
			w.remove(u)
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%s: got %q, want %q", test.name, s, test.want)
		}
	}
}

// A consumer that takes nothing for a while finds the newest of each kind.
func TestSlowConsumerGetsTheNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	replace(t, path, port(1))
	synctest.Test(t, func(t *testing.T) {
		s := newSource(Options{Scheme: scheme(), Path: path, Set: []string{"reload.pollInterval=1s"}}, true)
		if _, errs := s.Load(); len(errs) > 0 {
			t.Fatal(errs)
		}
		stop := run(t, s)
		defer stop()
		for i := range 20 {
			replace(t, path, port(100+i))
			time.Sleep(5 * time.Second)
			replace(t, path, port(-100-i))
			time.Sleep(5 * time.Second)
		}
		if got := (<-s.Updates()).Snapshot; got == nil || got.Config.Server.Port != 119 {
			t.Errorf("%+v", got)
		}
		if got := (<-s.Updates()).Rejection; got == nil || !strings.Contains(got.Errors.Error(), "-119") {
			t.Errorf("%+v", got)
		}
		select {
		case u := <-s.Updates():
			t.Errorf("one more: %+v", u)
		case <-time.After(time.Minute):
		}
	})
}

func TestSnapshotsShareNothing(t *testing.T) {
	path := file(t, "logging: {modules: {config: 1}}\n")
	one, errs := Load(Options{Scheme: scheme(), Path: path})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	two, _ := Load(Options{Scheme: scheme(), Path: path})
	one.Config.Logging.Modules["config"] = 9
	one.Config.Controllers.Sections["deployment-controller"].Base().Workers = 99
	one.Origins["logging.level"] = schema.Origin{}
	if two.Config.Logging.Modules["config"] != 1 || workers(two.Config, "deployment-controller") == 99 ||
		two.Origins["logging.level"].Layer != "default" {
		t.Error("two snapshots share memory")
	}
}
