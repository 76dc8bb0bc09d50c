package runtime_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/goroutines"
)

func TestMain(m *testing.M) {
	code := controlplane.Main(m, controlplane.Options{})
	if code == 0 {
		if err := goroutines.Left(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
