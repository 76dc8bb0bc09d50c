package endpoints

import (
	"os"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, controlplane.Options{APIServerArgs: fixture.DualStack}))
}
