package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAControllerSaysWhyItIsUnavailable(t *testing.T) {
	t.Parallel()
	const name = "choosy-controller"
	d := descriptor(name, func(context.Context, string) (work.Result, error) { return work.Result{}, nil })
	d.Unavailable = func(s schema.Section, serverCA []byte) string {
		switch {
		case len(serverCA) == 0:
			return "the API server's CA is not known"
		case s.Base().Workers < 2:
			return "it wants company"
		}
		return ""
	}
	p := run(t, controlplane.Shared(t), name, d)
	is := func(state supervisor.State, reason string) {
		t.Helper()
		harness.Eventually(t, time.Minute, string(state)+" controller", func(ctx context.Context) error {
			status, err := p.status(ctx, name)
			if err == nil && (status.State != string(state) || status.Reason != reason) {
				err = fmt.Errorf("it is %s: %s", status.State, status.Reason)
			}
			return err
		})
	}
	workers := func(count int) {
		p.edit(func(c *schema.ControllerManagerConfiguration) { c.Controllers.Sections[name].Base().Workers = count })
	}
	is(supervisor.Unavailable, "it wants company")
	workers(2)
	is(supervisor.Running, "")
	workers(1)
	is(supervisor.Unavailable, "it wants company")
}
