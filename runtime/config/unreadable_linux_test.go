package config

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnreadableFile(t *testing.T) {
	path := file(t, "")
	must(t, os.Chmod(path, 0))
	// Root may read everything, unless its thread does so in the name of another
	// user. The thread is not given back: it ends with the goroutine.
	done := make(chan string)
	go func() {
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if err := unix.Setfsuid(65534); err != nil {
				done <- err.Error()
				return
			}
		}
		_, errs := Load(Options{Scheme: scheme(), Path: path})
		done <- errs.Error()
	}()
	if got := <-done; !strings.HasSuffix(got, "cannot be read: permission denied") {
		t.Errorf("got %q", got)
	}
}
