// Package e2e tests the built daemon as a process against a real control plane.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// binary is the daemon's.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "wheelhouse-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if binary, err = daemon.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := controlplane.Main(m, controlplane.Options{Audit: true, Nodes: 2, Scheduler: true})
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
