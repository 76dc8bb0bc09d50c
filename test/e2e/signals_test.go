package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// send sends a signal to a daemon that runs.
func send(t *testing.T, d *daemon.Daemon, s syscall.Signal) {
	t.Helper()
	pid := d.PID()
	if pid == 0 {
		t.Fatalf("the daemon has ended before %s", s)
	}
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// ends waits for the end of a daemon.
func ends(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	select {
	case <-d.Exited():
	case <-time.After(soon):
		t.Fatalf("the daemon has not ended within %s", soon)
	}
}

// While a reconcile that hangs holds up the end, the daemon leads and answers.
// A second SIGTERM, or an edit that shortens the wait, ends it.
func TestAnEndThatIsHeldUp(t *testing.T) {
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	for _, test := range []struct {
		name string
		then func(*testing.T, *daemon.Daemon)
	}{
		{"second", func(t *testing.T, d *daemon.Daemon) {
			send(t, d, syscall.SIGTERM)
			ends(t, d)
		}},
		{"shorter", func(t *testing.T, d *daemon.Daemon) {
			if err := d.Edit(func(c *schema.ControllerManagerConfiguration) {
				c.Reload.DrainTimeout.Duration = time.Second
			}); err != nil {
				t.Fatal(err)
			}
			ends(t, d)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			namespace := cp.Namespace(t)
			d, proxy := behind(t, cp, "held-up-"+test.name, func(c *schema.ControllerManagerConfiguration) {
				c.Reload.DrainTimeout.Duration = 10 * soon
			})
			leading(t, d)
			var hanging atomic.Bool
			freed := make(chan struct{})
			defer close(freed)
			proxy.Before(func(r apiproxy.Request) {
				if r.Namespace == namespace && r.Resource.Resource == "replicasets" && r.Write() {
					hanging.Store(true)
					<-freed
				}
			})
			deploy(t, client, namespace, "web", 1)
			eventually(t, soon, "a write hangs", func(context.Context) error {
				if !hanging.Load() {
					return errors.New("none was sent")
				}
				return nil
			})
			send(t, d, syscall.SIGTERM)
			state(t, d, "deployment-controller", "Stopping")
			status, err := leader(t.Context(), d)
			if err == nil && !status.Leader {
				err = fmt.Errorf("%+v", status)
			}
			if err != nil {
				t.Errorf("it does not lead any more: %v", err)
			}
			test.then(t, d)
		})
	}
}
