package harness

import (
	"fmt"
	"os"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/goroutines"
)

// Main runs the tests of a package with a shared control plane, as
// controlplane.Main does, and fails them when a goroutine is left at the end.
func Main(m *testing.M, o controlplane.Options) int {
	code := controlplane.Main(m, o)
	if code != 0 {
		return code
	}
	if err := goroutines.Left(); err != nil {
		fmt.Fprintln(os.Stderr, "after all tests:", err)
		return 1
	}
	return code
}
