package filewatch

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Files that are swapped together are read together, however fast they are swapped.
func TestSetIsOfOneMoment(t *testing.T) {
	t.Parallel()
	c := &configMap{dir: t.TempDir()}
	swap := func() {
		version := fmt.Sprint(c.version)
		c.update(t, map[string]string{"tls.crt": version, "tls.key": version})
	}
	swap()
	w := New(Options{Paths: []string{filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key")}})
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				swap()
			}
		}
	}()
	whole := 0
	for range 3000 {
		captured, stable := w.capture()
		captured.close()
		if !stable {
			continue
		}
		whole++
		set := captured.set(TriggerPoll)
		if state(set.Files[0]) != state(set.Files[1]) {
			t.Errorf("certificate %s with key %s", state(set.Files[0]), state(set.Files[1]))
			break
		}
	}
	close(end)
	<-ended
	if whole == 0 {
		t.Error("never read as a whole")
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "12345")
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for _, test := range []struct {
		name  string
		path  string
		limit int64
		want  error
	}{
		{"as large as the limit", path, 5, nil},
		{"larger than the limit", path, 4, ErrTooLarge},
		{"larger than its size says", "/proc/self/status", 10, ErrTooLarge},
		{"without a size", "/proc/self/comm", 100, nil},
		{"pipe", filepath.Join(dir, "pipe"), 5, ErrNotRegular},
		{"device", "/dev/zero", 5, ErrNotRegular},
		{"directory", dir, 5, syscall.EISDIR},
		{"missing", filepath.Join(dir, "missing"), 5, fs.ErrNotExist},
		{"below a file", filepath.Join(path, "g"), 5, syscall.ENOTDIR},
	} {
		got := ReadFile(test.path, test.limit)
		if !errors.Is(got.Err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got.Err, test.want)
		}
		if got.Path != test.path || (got.Err == nil) != (got.Data != nil) || (got.Err == nil) != (len(got.Digest) == 64) {
			t.Errorf("%s: %+v", test.name, got)
		}
		if got.Err != nil && strings.Count(got.Err.Error(), test.path) != 1 {
			t.Errorf("%s: the path is not once in %q", test.name, got.Err)
		}
	}
}
