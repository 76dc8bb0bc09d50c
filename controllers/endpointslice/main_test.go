package endpointslice_test

import (
	"os"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	"github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, controlplane.Options{APIServerArgs: servicefixture.DualStack}))
}
