package filewatch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

var (
	// ErrTooLarge is wrapped by the error of a file with more than MaxBytes.
	ErrTooLarge = errors.New("file is too large")
	// ErrNotRegular is wrapped by the error of a directory, a pipe or a device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrUnstable is wrapped by the error of a file that changes whenever it is read.
	ErrUnstable = errors.New("file changes while it is read")
)

// readAttempts bounds how often a file that changes under the reader is read again at once.
const readAttempts = 5

// ReadFile reads one regular file of at most maxBytes.
func ReadFile(path string, maxBytes int64) File {
	w := New(Options{Paths: []string{path}, MaxBytes: maxBytes})
	return w.Read().Files[0]
}

// reading is one file as it was read. The open file keeps the inode, so that
// later writes to it can be told from another file having taken its name.
type reading struct {
	path   string
	handle *os.File
	info   fs.FileInfo
	file   File
	torn   bool
}

// read never blocks on a pipe and never holds more than maxBytes.
func read(path string, maxBytes int64) reading {
	r := reading{path: path, file: File{Path: path}}
	r.handle, r.file.Err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if r.file.Err != nil {
		return r
	}
	if r.info, r.file.Err = r.handle.Stat(); r.file.Err != nil {
		return r
	}
	switch {
	case r.info.IsDir():
		r.file.Err = fmt.Errorf("read %s: %w: %w", path, syscall.EISDIR, ErrNotRegular)
		return r
	case !r.info.Mode().IsRegular():
		r.file.Err = fmt.Errorf("read %s: %w", path, ErrNotRegular)
		return r
	case r.info.Size() > maxBytes:
		r.file.Err = tooLarge(path, maxBytes)
		return r
	}
	data, err := io.ReadAll(io.LimitReader(r.handle, maxBytes+1))
	switch {
	case err != nil:
		r.file.Err = err
	case int64(len(data)) > maxBytes:
		r.file.Err = tooLarge(path, maxBytes)
	default:
		sum := sha256.Sum256(data)
		r.file.Data, r.file.Digest = data, hex.EncodeToString(sum[:])
	}
	r.torn = r.written()
	return r
}

func tooLarge(path string, maxBytes int64) error {
	return fmt.Errorf("read %s: %w, at most %d bytes are read", path, ErrTooLarge, maxBytes)
}

func unstable(path string) error { return fmt.Errorf("read %s: %w", path, ErrUnstable) }

// written tells whether the inode was written to since it was opened.
func (r reading) written() bool {
	if r.info == nil {
		return false
	}
	now, err := r.handle.Stat()
	return err != nil || now.Size() != r.info.Size() || !now.ModTime().Equal(r.info.ModTime())
}

// moved tells whether the path leads elsewhere than when it was opened.
func (r reading) moved() bool {
	now, err := os.Stat(r.path)
	if r.info == nil {
		return errors.Is(err, fs.ErrNotExist) != errors.Is(r.file.Err, fs.ErrNotExist)
	}
	return err != nil || !os.SameFile(now, r.info)
}

// capture is all files of a watcher, read together.
type capture []reading

// capture reads all files, again while they change under it. When stable is
// false the files may not belong together or be half written.
func (w *Watcher) capture() (c capture, stable bool) {
	for range readAttempts {
		c.close()
		c = c[:0]
		for _, path := range w.o.Paths {
			c = append(c, read(path, w.o.MaxBytes))
		}
		if c.stable() {
			return c, true
		}
	}
	return c, false
}

// stable tells whether all readings were of the same moment.
func (c capture) stable() bool {
	for _, r := range c {
		if r.torn || r.written() || r.moved() {
			return false
		}
	}
	return true
}

// readable tells whether every file could be read, each as of one moment.
func (c capture) readable() bool {
	for _, r := range c {
		if r.file.Err != nil || r.torn {
			return false
		}
	}
	return len(c) > 0
}

// settled tells whether every file could be read and was not written to since.
func (c capture) settled() bool {
	for _, r := range c {
		if r.written() {
			return false
		}
	}
	return c.readable()
}

func (c capture) set(trigger string) Set {
	s := Set{Trigger: trigger}
	for _, r := range c {
		s.Files = append(s.Files, r.file)
	}
	return s
}

// close releases the open files; their contents stay.
func (c capture) close() {
	for _, r := range c {
		if r.handle != nil {
			_ = r.handle.Close() // opened for reading only: nothing can be lost
		}
	}
}
