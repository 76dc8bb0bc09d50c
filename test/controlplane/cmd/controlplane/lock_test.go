package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryIsForOneRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir); err == nil || !strings.Contains(err.Error(), "another run uses it") {
		t.Errorf("taken a second time: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	unlock, err = lock(dir)
	if err != nil {
		t.Fatalf("not free after it was given back: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}
