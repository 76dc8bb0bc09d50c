package statefulset_test

import (
	"os"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// The strategy Recreate is refused by an API server without its gate.
func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, controlplane.Options{APIServerArgs: []string{"--feature-gates=StatefulSetRecreateStrategy=true"}}))
}
