package filewatch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// inNamespace is set in the process that may mount.
const inNamespace = "FILEWATCH_TEST_IN_NAMESPACE"

// Mounts send no events: polling finds them, and events work again behind them.
// The test runs itself again in a user and mount namespace, where it may mount.
func TestMounts(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		self := exec.Command(os.Args[0], "-test.run=^TestMounts$", "-test.v")
		self.Env = append(os.Environ(), inNamespace+"=1")
		self.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		out, err := self.CombinedOutput()
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("this machine lets nobody make user namespaces: %v", err)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}

	dir := t.TempDir()
	mounted, file := filepath.Join(dir, "mounted"), filepath.Join(dir, "file")
	for _, d := range []string{"a", "b", "mounted"} {
		mkdir(t, filepath.Join(dir, d))
	}
	write(t, filepath.Join(dir, "a", "f"), "a")
	write(t, filepath.Join(dir, "b", "f"), "b")
	write(t, file, "covered")
	bind := func(from, to string) {
		t.Helper()
		must(t, syscall.Mount(from, to, "", syscall.MS_BIND, ""))
	}
	unmount := func(path string) {
		t.Helper()
		must(t, syscall.Unmount(path, 0))
	}
	o := Options{Debounce: 10 * time.Millisecond, PollInterval: 50 * time.Millisecond}

	o.Paths = []string{filepath.Join(mounted, "f")}
	f := follow(t, o)
	f.until("a missing file", func(reports []Set, _ int) bool { return len(reports) == 1 && reports[0].Files[0].Err != nil })
	bind(filepath.Join(dir, "a"), mounted) // a mount that appears later
	f.untilLast("a")
	f.SetIntervals(10*time.Millisecond, 0)
	replace(t, filepath.Join(mounted, "f"), "a2")
	f.untilLast("a2") // by events
	f.SetIntervals(10*time.Millisecond, 50*time.Millisecond)
	bind(filepath.Join(dir, "b"), mounted) // over the other one
	f.untilLast("b")
	unmount(mounted)
	f.untilLast("a2")
	f.stop()
	unmount(mounted)

	// One file mounted by itself, as a subPath is.
	o.Paths = []string{file}
	f = follow(t, o)
	f.untilLast("covered")
	bind(filepath.Join(dir, "a", "f"), file)
	f.untilLast("a2")
	f.SetIntervals(10*time.Millisecond, 0)
	write(t, filepath.Join(dir, "a", "f"), "a3") // in place, by its other name
	f.untilLast("a3")
	f.stop()
	unmount(file)
}
