package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func contextWithCancel() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// edits are the ways in which the content of a file comes to change from old
// to new. begin makes the file below dir and returns the path that is followed.
var edits = []struct {
	name  string
	begin func(t *testing.T, dir string) string
	edit  func(t *testing.T, dir string)
}{
	{
		name:  "written in place",
		begin: plainFile,
		edit:  func(t *testing.T, dir string) { write(t, filepath.Join(dir, "f"), "new") },
	},
	{
		name:  "written in place in two steps",
		begin: plainFile,
		edit: func(t *testing.T, dir string) {
			f, err := os.Create(filepath.Join(dir, "f"))
			must(t, err)
			_, err = f.WriteString("n")
			must(t, err)
			must(t, f.Sync())
			_, err = f.WriteString("ew")
			must(t, err)
			must(t, f.Close())
		},
	},
	{
		name: "written in place through another hard link",
		begin: func(t *testing.T, dir string) string {
			mkdir(t, filepath.Join(dir, "elsewhere"))
			write(t, filepath.Join(dir, "elsewhere", "f"), "old")
			must(t, os.Link(filepath.Join(dir, "elsewhere", "f"), filepath.Join(dir, "f")))
			return filepath.Join(dir, "f")
		},
		edit: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "elsewhere", "f"), "new") },
	},
	{
		name:  "renamed over",
		begin: plainFile,
		edit:  func(t *testing.T, dir string) { replace(t, filepath.Join(dir, "f"), "new") },
	},
	{
		name:  "renamed over from another directory",
		begin: plainFile,
		edit: func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, "elsewhere"))
			write(t, filepath.Join(dir, "elsewhere", "g"), "new")
			rename(t, filepath.Join(dir, "elsewhere", "g"), filepath.Join(dir, "f"))
		},
	},
	{
		name:  "moved to a backup and written anew, as editors do",
		begin: plainFile,
		edit: func(t *testing.T, dir string) {
			rename(t, filepath.Join(dir, "f"), filepath.Join(dir, "f~"))
			write(t, filepath.Join(dir, "f"), "new")
			remove(t, filepath.Join(dir, "f~"))
		},
	},
	{
		name:  "removed and made again",
		begin: plainFile,
		edit: func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "f"))
			write(t, filepath.Join(dir, "f"), "new")
		},
	},
	{
		name:  "replaced by a symbolic link",
		begin: plainFile,
		edit: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "g"), "new")
			relink(t, "g", filepath.Join(dir, "f"))
		},
	},
	{
		name:  "symbolic link retargeted in one step",
		begin: linkedFile,
		edit: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "b"), "new")
			relink(t, "b", filepath.Join(dir, "f"))
		},
	},
	{
		name:  "symbolic link removed and made again",
		begin: linkedFile,
		edit: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "b"), "new")
			remove(t, filepath.Join(dir, "f"))
			symlink(t, filepath.Join(dir, "b"), filepath.Join(dir, "f"))
		},
	},
	{
		name:  "target of the symbolic link written in place",
		begin: linkedFile,
		edit:  func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a"), "new") },
	},
	{
		name:  "target of the symbolic link renamed over",
		begin: linkedFile,
		edit:  func(t *testing.T, dir string) { replace(t, filepath.Join(dir, "a"), "new") },
	},
	{
		name:  "symbolic link retargeted into a directory that did not exist at start",
		begin: linkedFile,
		edit: func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, "made", "later"))
			write(t, filepath.Join(dir, "made", "later", "b"), "new")
			relink(t, filepath.Join(dir, "made", "later", "b"), filepath.Join(dir, "f"))
		},
	},
	{
		name: "symbolic link in the middle of the path retargeted",
		begin: func(t *testing.T, dir string) string {
			mkdir(t, filepath.Join(dir, "1", "sub"))
			mkdir(t, filepath.Join(dir, "2", "sub"))
			write(t, filepath.Join(dir, "1", "sub", "f"), "old")
			write(t, filepath.Join(dir, "2", "sub", "f"), "new")
			symlink(t, "1", filepath.Join(dir, "current"))
			return filepath.Join(dir, "current", "sub", "f")
		},
		edit: func(t *testing.T, dir string) { relink(t, "2", filepath.Join(dir, "current")) },
	},
	{
		name: "link in the middle of a chain of links retargeted",
		begin: func(t *testing.T, dir string) string {
			for _, d := range []string{"a", "b", "c"} {
				mkdir(t, filepath.Join(dir, d))
			}
			write(t, filepath.Join(dir, "c", "old"), "old")
			write(t, filepath.Join(dir, "c", "new"), "new")
			symlink(t, "../c/old", filepath.Join(dir, "b", "second"))
			symlink(t, "../b/second", filepath.Join(dir, "a", "first"))
			symlink(t, "a/first", filepath.Join(dir, "f"))
			return filepath.Join(dir, "f")
		},
		edit: func(t *testing.T, dir string) { relink(t, "../c/new", filepath.Join(dir, "b", "second")) },
	},
	{
		name: "ConfigMap updated by the kubelet",
		begin: func(t *testing.T, dir string) string {
			c := &configMap{dir: dir}
			c.update(t, map[string]string{"config.yaml": "old"})
			return c.path()
		},
		edit: func(t *testing.T, dir string) {
			(&configMap{dir: dir, version: 1}).update(t, map[string]string{"config.yaml": "new"})
		},
	},
	{
		name: "ConfigMap updated twice",
		begin: func(t *testing.T, dir string) string {
			c := &configMap{dir: dir}
			c.update(t, map[string]string{"config.yaml": "old"})
			return c.path()
		},
		edit: func(t *testing.T, dir string) {
			c := &configMap{dir: dir, version: 1}
			c.update(t, map[string]string{"config.yaml": "between"})
			c.update(t, map[string]string{"config.yaml": "new"})
		},
	},
	{
		name:  "whole directory removed and made again",
		begin: nestedFile,
		edit: func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "outer"))
			mkdir(t, filepath.Join(dir, "outer", "inner"))
			write(t, filepath.Join(dir, "outer", "inner", "f"), "new")
		},
	},
	{
		name:  "whole directory replaced by another",
		begin: nestedFile,
		edit: func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, "next", "inner"))
			write(t, filepath.Join(dir, "next", "inner", "f"), "new")
			rename(t, filepath.Join(dir, "outer"), filepath.Join(dir, "gone"))
			rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "outer"))
		},
	},
	{
		name:  "directory moved away and back with another content",
		begin: nestedFile,
		edit: func(t *testing.T, dir string) {
			rename(t, filepath.Join(dir, "outer", "inner"), filepath.Join(dir, "away"))
			write(t, filepath.Join(dir, "away", "f"), "new")
			rename(t, filepath.Join(dir, "away"), filepath.Join(dir, "outer", "inner"))
		},
	},
	{
		name: "made after the start, with its directories",
		begin: func(t *testing.T, dir string) string {
			return filepath.Join(dir, "outer", "inner", "f")
		},
		edit: func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, "outer", "inner"))
			write(t, filepath.Join(dir, "outer", "inner", "f"), "new")
		},
	},
	{
		name: "directory in its place gives way to it",
		begin: func(t *testing.T, dir string) string {
			mkdir(t, filepath.Join(dir, "f"))
			return filepath.Join(dir, "f")
		},
		edit: func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "f"))
			write(t, filepath.Join(dir, "f"), "new")
		},
	},
	{
		name: "dangling link gets its target",
		begin: func(t *testing.T, dir string) string {
			symlink(t, "later/f", filepath.Join(dir, "f"))
			return filepath.Join(dir, "f")
		},
		edit: func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, "later"))
			write(t, filepath.Join(dir, "later", "f"), "new")
		},
	},
	{
		name: "loop of links gives way to it",
		begin: func(t *testing.T, dir string) string {
			symlink(t, "g", filepath.Join(dir, "f"))
			symlink(t, "f", filepath.Join(dir, "g"))
			return filepath.Join(dir, "f")
		},
		edit: func(t *testing.T, dir string) { replace(t, filepath.Join(dir, "g"), "new") },
	},
}

func plainFile(t *testing.T, dir string) string {
	write(t, filepath.Join(dir, "f"), "old")
	return filepath.Join(dir, "f")
}

func linkedFile(t *testing.T, dir string) string {
	write(t, filepath.Join(dir, "a"), "old")
	symlink(t, "a", filepath.Join(dir, "f"))
	return filepath.Join(dir, "f")
}

func nestedFile(t *testing.T, dir string) string {
	mkdir(t, filepath.Join(dir, "outer", "inner"))
	write(t, filepath.Join(dir, "outer", "inner", "f"), "old")
	return filepath.Join(dir, "outer", "inner", "f")
}

// Every way of editing is picked up, once.
func TestEveryEditIsReportedOnce(t *testing.T) {
	t.Parallel()
	// So long that an edit of several steps is hardly ever taken for two.
	const debounce = 300 * time.Millisecond
	modes := []struct {
		name    string
		trigger string
		options Options
	}{
		{"events", TriggerEvent, Options{Debounce: debounce}},
		{"poll", TriggerPoll, Options{Debounce: debounce, PollInterval: 20 * time.Millisecond, PollOnly: true}},
	}
	for _, mode := range modes {
		for _, edit := range edits {
			t.Run(mode.name+"/"+edit.name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				o := mode.options
				o.Paths = []string{edit.begin(t, dir)}
				f := follow(t, o)
				f.until("the start", func(reports []Set, _ int) bool { return len(reports) == 1 })
				before := f.settle()
				if before[0].Trigger != TriggerStart || len(before) != 1 {
					t.Fatalf("at start: %s", contents(before))
				}

				began := time.Now()
				edit.edit(t, dir)
				if took := time.Since(began); took >= debounce {
					f.untilLast("new")
					t.Logf("the edit took %s, and may have been seen in its midst", took)
					return
				}
				f.untilLast("new")
				after := f.settle()
				if len(after) != 2 || after[1].Trigger != mode.trigger || !after[1].Files[0].Changed {
					t.Errorf("reported %s, want the start and one %s", contents(after), mode.trigger)
				}
			})
		}
	}
}

func TestRewritingTheSameContentIsNoChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := plainFile(t, dir)
	f := follow(t, Options{Paths: []string{path}, Debounce: time.Millisecond})
	f.untilLast("old")
	write(t, path, "old")
	replace(t, path, "old")
	remove(t, path)
	write(t, path, "old")
	replace(t, path, "new")
	f.untilLast("new")
	for _, r := range f.settle() {
		if s := state(r.Files[0]); s != "old" && s != "new" && r.Files[0].Err == nil && s != "" {
			t.Errorf("reported %q", s)
		}
	}
	reports := f.settle()
	for i := 1; i < len(reports); i++ {
		if state(reports[i].Files[0]) == state(reports[i-1].Files[0]) {
			t.Errorf("reported twice in a row: %s", contents(reports))
		}
	}
}

func TestUnusableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := plainFile(t, dir)
	const debounce = 300 * time.Millisecond
	f := follow(t, Options{Paths: []string{path}, Debounce: debounce, MaxBytes: 10})
	f.untilLast("old")
	steps := []struct {
		name string
		edit func()
		want error
	}{
		{"missing", func() { remove(t, path) }, fs.ErrNotExist},
		{"directory", func() { mkdir(t, path) }, ErrNotRegular},
		{"too large", func() { remove(t, path); write(t, path, "more than ten bytes") }, ErrTooLarge},
		{"fine again", func() { replace(t, path, "old") }, nil},
	}
	inOne := true
	for i, step := range steps {
		began := time.Now()
		step.edit()
		inOne = inOne && time.Since(began) < debounce
		f.until(step.name, func(reports []Set, _ int) bool {
			return errors.Is(reports[len(reports)-1].Files[0].Err, step.want) && len(reports) >= i+2
		})
	}
	// A step that took long may have been seen in its midst.
	if reports := f.settle(); len(reports) != len(steps)+1 && inOne {
		t.Errorf("reported %s, want each step once", contents(reports))
	}
}

func TestSetOfFilesReportsWhichChanged(t *testing.T) {
	t.Parallel()
	c := &configMap{dir: t.TempDir()}
	c.update(t, map[string]string{"tls.crt": "1", "tls.key": "1", "ca.crt": "1"})
	var paths []string
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		paths = append(paths, filepath.Join(c.dir, name))
	}
	f := follow(t, Options{Paths: paths, Debounce: 10 * time.Millisecond})
	f.untilLast("1")
	c.update(t, map[string]string{"tls.crt": "2", "tls.key": "2", "ca.crt": "1"})
	f.untilLast("2")
	reports := f.settle()
	if len(reports) != 2 {
		t.Fatalf("reported %s", contents(reports))
	}
	for i, want := range []bool{true, true, false} {
		if file := reports[1].Files[i]; file.Changed != want || file.Path != paths[i] {
			t.Errorf("file %d: %s changed %v, want %s %v", i, file.Path, file.Changed, paths[i], want)
		}
	}
}

func TestRunReportsOnlyWhatChangedSinceRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, changed := range []bool{false, true} {
		path := plainFile(t, dir)
		reports := make(chan Set, 10)
		unchanged := make(chan struct{}, 10)
		w := New(Options{
			Paths: []string{path}, Debounce: time.Millisecond,
			OnChange:    func(s Set) { reports <- s },
			OnUnchanged: func() { unchanged <- struct{}{} },
		})
		if got := w.Read(); state(got.Files[0]) != "old" || got.Trigger != TriggerStart {
			t.Fatalf("Read: %s", contents([]Set{got}))
		}
		if changed {
			replace(t, path, "new")
		}
		ctx, cancel := contextWithCancel()
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		if changed {
			if got := <-reports; state(got.Files[0]) != "new" || got.Trigger != TriggerEvent {
				t.Errorf("Run: %s", contents([]Set{got}))
			}
		}
		w.Check()
		<-unchanged
		cancel()
		must(t, <-done)
		if len(reports) != 0 {
			t.Errorf("reported more: %s", contents([]Set{<-reports}))
		}
	}
}

func TestRunRefusesToFollowNothing(t *testing.T) {
	if err := New(Options{OnChange: func(Set) {}}).Run(t.Context()); err == nil {
		t.Error("no error without paths")
	}
	if err := New(Options{Paths: []string{"f"}}).Run(t.Context()); err == nil {
		t.Error("no error without OnChange")
	}
}
