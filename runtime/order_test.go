package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// using is a controller that does nothing but lease an informer of Deployments.
func using(name string, lease func(*informers.Lease) (*informers.Informer, error)) controller.Descriptor {
	d := descriptor(name, nil)
	d.New = func(env controller.Env, _ schema.Section) (*controller.Controller, error) {
		_, err := lease(env.Informers)
		return &controller.Controller{}, err
	}
	return d
}

// A controller that monitors what is served shares the informers of the others,
// also of those that take longer to be made, and does not wait for one that
// cannot be made, or may not run.
func TestMonitorsShareTheInformersOfOthers(t *testing.T) {
	resource := appsv1.SchemeGroupVersion.WithResource("deployments")
	slow := make(chan struct{})
	user := using("slow-controller", func(l *informers.Lease) (*informers.Informer, error) {
		<-slow
		return l.Informer(resource)
	})
	monitor := using("a-monitor", func(l *informers.Lease) (*informers.Informer, error) { return l.Monitor(resource) })
	monitor.Monitors = true
	unmakable := using("unmakable-controller", func(*informers.Lease) (*informers.Informer, error) { return nil, errors.New("as it is meant") })
	gated := using("gated-controller", nil)
	gated.Unavailable = func(schema.Section, []byte) string { return "never" }

	cp := controlplane.Shared(t)
	p := run(t, cp, cp.Namespace(t), monitor, user, unmakable, gated)
	p.expect("a-monitor", "waits to be made", func(s status) bool { return s.State == "Starting" })
	close(slow)
	began := time.Now()
	for _, name := range []string{"a-monitor", "slow-controller"} {
		p.expect(name, "runs", func(s status) bool { return s.State == "Running" })
	}
	t.Logf("both run after %s", time.Since(began))
	eventually(t, 30*time.Second, "one informer serves both", func(ctx context.Context) error {
		code, body, err := p.get(ctx, "/debug/informers?format=json")
		if err != nil || code != http.StatusOK {
			return errors.Join(err, errors.New(string(body)))
		}
		var shown struct {
			Informers []informers.Status `json:"informers"`
		}
		if err := json.Unmarshal(body, &shown); err != nil {
			return err
		}
		if all := shown.Informers; len(all) != 1 || all[0].Metadata || len(all[0].Users) != 2 {
			return errors.New(string(body))
		}
		return nil
	})
}
