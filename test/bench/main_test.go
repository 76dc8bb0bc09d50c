// Package bench measures the daemon against kube-controller-manager, in the
// same run and on control planes of the same kind. Run it with make bench;
// BENCH_DOC=docs/benchmarks.md writes the result there.
package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/controllers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// peerControllers are those that the daemon has as well. The peer runs only
// these, or it would be charged for work that the daemon does not do.
var peerControllers = func() (names []string) {
	for _, d := range controllers.All() {
		names = append(names, d.Name())
	}
	return names
}()

// results of this run, which TestMain prints.
var results report

// binaryDir is removed when the run ends.
var binaryDir string

// binary builds the daemon with the flags that the peer is built with, on first use.
var binary = sync.OnceValues(func() (string, error) {
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
		return "", fmt.Errorf("build without cgo: %w", err)
	}
	return daemon.Build(context.Background(), binaryDir, "-ldflags", "-s -w")
})

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "wheelhouse-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if len(results.rows) > 0 {
		fmt.Print("\n", results.table(""))
	}
	if err := os.RemoveAll(binaryDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// program is a controller manager of either kind.
type program interface {
	Start() error
	Stop() error
	PID() int
	LogPath() string
}

// controlPlane starts a fresh control plane that ends with the benchmark.
func controlPlane(b *testing.B, o controlplane.Options) (*controlplane.ControlPlane, kubernetes.Interface) {
	b.Helper()
	o.Audit = true
	cp, err := controlplane.Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			b.Errorf("stop the control plane: %v", err)
		}
	})
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	return cp, client
}

func startDaemon(b *testing.B, cp *controlplane.ControlPlane) *daemon.Daemon {
	b.Helper()
	path, err := binary()
	if err != nil {
		b.Fatal(err)
	}
	d, err := daemon.Start(daemon.Options{Binary: path, ControlPlane: cp})
	if err != nil {
		b.Fatal(err)
	}
	stopAtEnd(b, d)
	return d
}

func startPeer(b *testing.B, cp *controlplane.ControlPlane, args ...string) *controlplane.Peer {
	b.Helper()
	p, err := cp.StartPeer(b.Context(), controlplane.PeerOptions{Controllers: peerControllers, Args: args})
	if err != nil {
		b.Fatal(err)
	}
	stopAtEnd(b, p)
	return p
}

func stopAtEnd(b *testing.B, p program) {
	b.Helper()
	b.Cleanup(func() {
		if err := p.Stop(); err != nil {
			b.Errorf("stop %s: %v", filepath.Base(p.LogPath()), err)
		}
	})
}

// stopAndForget stops the program and deletes its lease, so that the next one need not wait.
func stopAndForget(b *testing.B, client kubernetes.Interface, p program) {
	b.Helper()
	if err := p.Stop(); err != nil {
		b.Fatal(err)
	}
	err := client.CoordinationV1().Leases(metav1.NamespaceSystem).
		Delete(b.Context(), "kube-controller-manager", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		b.Fatal(err)
	}
}

// within polls until condition holds and fails the benchmark when it does not in time.
func within(b *testing.B, limit, every time.Duration, what string, condition func(context.Context) (bool, error)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := condition(ctx)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			b.Fatalf("%s: not within %s (%v)", what, limit, err)
		case <-tick.C:
		}
	}
}

// isDaemon tells whether a user agent is the daemon's.
func isDaemon(agent string) bool { return strings.HasPrefix(agent, "controller-manager/") }
