package runtime_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func TestMain(m *testing.M) {
	code := controlplane.Main(m, controlplane.Options{})
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
