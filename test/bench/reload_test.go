package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

const (
	// reloads is how often each kind is measured; the median counts.
	reloads = 20
	// edited is the controller that is reloaded.
	edited = "ttl-after-finished-controller"
)

// status is the part of /debug/controllers/NAME that tells a reload's effect.
type status struct {
	State   string `json:"state"`
	Workers struct {
		Running int `json:"running"`
	} `json:"workers"`
}

// latencies from the write of the file to its effect.
type latencies struct{ enable, resize time.Duration }

func measureReload(b *testing.B, d *daemon.Daemon) latencies {
	b.Helper()
	edit := func(change func(*schema.ControllerSettings), effect func(status) bool) time.Duration {
		began := time.Now()
		err := d.Edit(func(c *schema.ControllerManagerConfiguration) { change(c.Controllers.Sections[edited].Base()) })
		if err != nil {
			b.Fatal(err)
		}
		within(b, 30*time.Second, 5*time.Millisecond, "effect of the edit", func(ctx context.Context) (bool, error) {
			var s status
			if err := d.Get(ctx, "/debug/controllers/"+edited, &s); err != nil {
				return false, err
			}
			return effect(s), fmt.Errorf("it is %+v", s)
		})
		return time.Since(began)
	}
	var enable, resize []time.Duration
	for i := range reloads {
		edit(func(c *schema.ControllerSettings) { c.Enabled = false }, func(s status) bool { return s.State == "Disabled" })
		enable = append(enable, edit(func(c *schema.ControllerSettings) { c.Enabled = true }, func(s status) bool { return s.State == "Running" }))
		workers := 6 + i%2
		resize = append(resize, edit(func(c *schema.ControllerSettings) { c.Workers = workers }, func(s status) bool { return s.Workers.Running == workers }))
	}
	return latencies{enable: median(enable), resize: median(resize)}
}
