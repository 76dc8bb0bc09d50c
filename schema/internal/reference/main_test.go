package main

import "testing"

func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	if err := run([]string{"check"}); err != nil {
		t.Error(err)
	}
}

func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"nonsense"}, {"check", "write"}} {
		if err := run(args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
