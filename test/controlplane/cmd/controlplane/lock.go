package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock makes dir and takes it for this process until unlock is called: a second
// run would replace the certificates and the storage under the first one.
func lock(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another run uses it; end that one, or choose another directory with -dir")
		}
		return nil, errors.Join(fmt.Errorf("take %s: %w", dir, err), file.Close())
	}
	return file.Close, nil // closing unlocks
}
