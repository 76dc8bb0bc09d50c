package endpointslice_test

import (
	"testing"

	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

// A reload at any moment changes nothing about where the slices end up, and
// leaves no ready pod out for long. Meanwhile pods are replaced one by one,
// selectors change, and nodes come and go.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	churn := fixture.NewChurn(c.World, c.FollowSlices(manager))
	churn.Run(c.controller)
	churn.Check()
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "the final state")
}
