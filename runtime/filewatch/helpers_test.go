package filewatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// following is a watcher under test with what it reported.
type following struct {
	*Watcher
	t         testing.TB
	mu        sync.Mutex
	reports   []Set
	unchanged int
	moved     chan struct{}
	stop      func()
}

// follow runs a watcher until the test ends or stop is called.
func follow(t testing.TB, o Options) *following {
	t.Helper()
	f := &following{t: t, moved: make(chan struct{}, 1)}
	o.OnChange = func(s Set) {
		f.mu.Lock()
		f.reports = append(f.reports, s)
		f.mu.Unlock()
		nudge(f.moved)
	}
	o.OnUnchanged = func() {
		f.mu.Lock()
		f.unchanged++
		f.mu.Unlock()
		nudge(f.moved)
	}
	f.Watcher = New(o)
	ctx, cancel := contextWithCancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	var once sync.Once
	f.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(f.stop)
	return f
}

func (f *following) snapshot() (reports []Set, unchanged int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Set(nil), f.reports...), f.unchanged
}

// until waits for a condition on what was reported.
func (f *following) until(what string, condition func(reports []Set, unchanged int) bool) {
	f.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for !condition(f.snapshot()) {
		select {
		case <-f.moved:
		case <-deadline.C:
			reports, _ := f.snapshot()
			f.t.Fatalf("waited in vain for %s; reported: %s", what, contents(reports))
		}
	}
}

// untilLast waits for the newest report to have content.
func (f *following) untilLast(content string) {
	f.t.Helper()
	f.until(fmt.Sprintf("content %q", content), func(reports []Set, _ int) bool {
		return len(reports) > 0 && state(reports[len(reports)-1].Files[0]) == content
	})
}

// settle returns when a look after everything before it found nothing new.
func (f *following) settle() []Set {
	f.t.Helper()
	_, before := f.snapshot()
	f.Check()
	f.until("a look that finds nothing new", func(_ []Set, unchanged int) bool { return unchanged > before })
	reports, _ := f.snapshot()
	return reports
}

// state is a file's content, or the text of its error.
func state(f File) string {
	if f.Err != nil {
		return "error: " + f.Err.Error()
	}
	return string(f.Data)
}

func contents(reports []Set) string {
	var all []string
	for _, r := range reports {
		for _, f := range r.Files {
			all = append(all, fmt.Sprintf("%s:%q", r.Trigger, state(f)))
		}
	}
	return "[" + strings.Join(all, " ") + "]"
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func mkdir(t testing.TB, path string) {
	t.Helper()
	must(t, os.MkdirAll(path, 0o700))
}

func symlink(t testing.TB, to, path string) {
	t.Helper()
	must(t, os.Symlink(to, path))
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.Rename(from, to))
}

func remove(t testing.TB, path string) {
	t.Helper()
	must(t, os.RemoveAll(path))
}

// replace writes beside path and renames over it.
func replace(t testing.TB, path, content string) {
	t.Helper()
	write(t, path+".tmp", content)
	rename(t, path+".tmp", path)
}

// relink points a symbolic link elsewhere in one step.
func relink(t testing.TB, to, path string) {
	t.Helper()
	symlink(t, to, path+".tmp")
	rename(t, path+".tmp", path)
}

// configMap is a directory as the kubelet's AtomicWriter keeps it: the
// visible name is a link through ..data to a directory made for each version.
type configMap struct {
	dir     string
	version int
}

func (c *configMap) path() string { return filepath.Join(c.dir, "config.yaml") }

// update is one round of AtomicWriter: new directory, new link renamed over
// ..data, visible link if missing, old directory removed.
func (c *configMap) update(t testing.TB, files map[string]string) {
	t.Helper()
	old := fmt.Sprintf("..2026_01_01_%d", c.version)
	c.version++
	fresh := fmt.Sprintf("..2026_01_01_%d", c.version)
	mkdir(t, filepath.Join(c.dir, fresh))
	for name, content := range files {
		write(t, filepath.Join(c.dir, fresh, name), content)
	}
	symlink(t, fresh, filepath.Join(c.dir, "..data_tmp"))
	rename(t, filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, "..data"))
	for name := range files {
		visible := filepath.Join(c.dir, name)
		if _, err := os.Lstat(visible); os.IsNotExist(err) {
			symlink(t, filepath.Join("..data", name), visible)
		}
	}
	remove(t, filepath.Join(c.dir, old))
}
