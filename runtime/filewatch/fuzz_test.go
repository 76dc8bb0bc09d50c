package filewatch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzWatcher edits files and directories in any order. What is reported last
// must be what the path leads to in the end, by events alone, without polling.
func FuzzWatcher(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	f.Add([]byte{6, 9, 9, 2, 9, 1, 10, 10, 0})
	f.Add([]byte{8, 8, 8, 5, 7, 7, 3})
	f.Add([]byte{12, 11, 11, 12, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 60 {
			ops = ops[:60]
		}
		editAtRandom(t, ops)
	})
}

func TestRandomEdits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		ops := make([]byte, 1+random.IntN(60))
		for j := range ops {
			ops[j] = byte(random.Uint32())
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			editAtRandom(t, ops)
		})
	}
}

// editAtRandom follows root/cur/config/f, where cur and f may be links.
func editAtRandom(t *testing.T, ops []byte) {
	root := t.TempDir()
	in := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	path := in("cur", "config", "f")
	for _, d := range []string{"a", "b"} {
		mkdir(t, in(d, "config"))
	}
	write(t, in("a", "config", "f"), "start")
	symlink(t, "a", in("cur"))

	w := follow(t, Options{Paths: []string{path}, Debounce: time.Millisecond})
	w.untilLast("start")
	for i, op := range ops {
		content := fmt.Sprintf("%d", i)
		side := string('a' + rune(op>>7))
		dir := in(side, "config")
		file := filepath.Join(dir, "f")
		// An edit may be impossible at that point, such as writing into a
		// directory that is gone: then it changes nothing.
		attempt := func(err error) { _ = err }
		switch op & 0x7f % 14 {
		case 0:
			attempt(os.WriteFile(file, []byte(content), 0o600))
		case 1:
			attempt(os.WriteFile(file+".tmp", []byte(content), 0o600))
			attempt(os.Rename(file+".tmp", file))
		case 2:
			attempt(os.RemoveAll(file))
		case 3:
			attempt(os.Symlink(side, in("cur.tmp")))
			attempt(os.Rename(in("cur.tmp"), in("cur")))
		case 4:
			attempt(os.Remove(in("cur")))
		case 5:
			attempt(os.Symlink(in(side), in("cur")))
		case 6:
			attempt(os.RemoveAll(in(side)))
		case 7:
			attempt(os.MkdirAll(dir, 0o700))
		case 8:
			attempt(os.Rename(in("a"), in("c")))
			attempt(os.Rename(in("b"), in("a")))
			attempt(os.Rename(in("c"), in("b")))
		case 9:
			fresh := in(fmt.Sprintf("v%d", i))
			attempt(os.MkdirAll(fresh, 0o700))
			attempt(os.WriteFile(filepath.Join(fresh, "f"), []byte(content), 0o600))
			attempt(os.Symlink(filepath.Join(fresh, "f"), file+".tmp"))
			attempt(os.Rename(file+".tmp", file))
		case 10:
			attempt(os.Rename(dir, in("away")))
			attempt(os.WriteFile(in("away", "f"), []byte(content), 0o600))
			attempt(os.Rename(in("away"), dir))
		case 11:
			attempt(os.Remove(file))
			attempt(os.Mkdir(file, 0o700))
		case 12:
			attempt(os.Link(in("a", "config", "f"), in("b", "config", "f")))
		case 13:
			// Lets the watcher see what is there so far.
			if _, err := os.Stat(path); err == nil {
				found := ReadFile(path, DefaultMaxBytes)
				w.untilLast(state(found))
			}
		}
	}
	want := state(ReadFile(path, DefaultMaxBytes))
	w.untilLast(want)
	reports := w.settle()
	for i := 1; i < len(reports); i++ {
		if state(reports[i].Files[0]) == state(reports[i-1].Files[0]) {
			t.Errorf("the same was reported twice in a row: %s", contents(reports))
		}
	}
	if got := state(reports[len(reports)-1].Files[0]); got != want {
		t.Errorf("a look found %q, events %q", got, want)
	}
	w.stop()
}
