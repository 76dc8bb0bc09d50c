// Command conformance runs Kubernetes' own Conformance tests against a local
// control plane with simulated nodes and Wheelhouse, or kube-controller-manager.
//
// A test that needs real containers cannot pass on simulated nodes, whoever
// runs the controllers. Such tests are named in containers.txt, which is what
// kube-controller-manager fails here; every other one must pass.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wheelhouse-project/wheelhouse/controllers"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// focus are the tests of what controllers do.
const focus = `(\[sig-apps\]|` +
	`\[sig-api-machinery\] (Garbage collector|Namespaces|OrderedNamespaceDeletion|ResourceQuota)|` +
	`\[sig-auth\] (Certificates API|ServiceAccounts)|` +
	`\[sig-network\] (Endpoint|Service endpoints|ServiceCIDR)).*\[Conformance\]`

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/controller-manager", "the controller-manager, which make build builds")
	flag.StringVar(&o.dir, "dir", ".run/conformance", "directory of logs and reports")
	flag.StringVar(&o.focus, "focus", focus, "regular expression of the names of the tests")
	flag.BoolVar(&o.peer, "peer", false, "run kube-controller-manager instead of Wheelhouse")
	flag.IntVar(&o.nodes, "nodes", 4, "number of simulated nodes")
	flag.IntVar(&o.procs, "procs", 8, "tests at the same time")
	flag.DurationVar(&o.timeout, "timeout", 45*time.Minute, "of all tests")
	flag.Parse()
	if err := o.runUntilSignal(); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

type options struct {
	binary, dir, focus string
	peer               bool
	nodes, procs       int
	timeout            time.Duration
}

func (o options) runUntilSignal() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return o.run(ctx)
}

func (o options) run(ctx context.Context) (err error) {
	known, err := readKnown()
	if err != nil {
		return err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if err := os.RemoveAll(o.dir); err != nil {
		return fmt.Errorf("remove the files of the last run: %w", err)
	}
	if err := os.MkdirAll(o.dir, 0o750); err != nil {
		return err
	}
	programs, err := controlplane.Programs(ctx, os.Stdout, controlplane.E2ETests, controlplane.Ginkgo)
	if err != nil {
		return err
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir:                     filepath.Join(o.dir, "controlplane"),
		Nodes:                   o.nodes,
		Scheduler:               true,
		ServiceAccountAdmission: true,
		Progress:                os.Stdout,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	end, err := o.startControllers(ctx, cp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	report, err := o.runTests(ctx, cp, programs)
	if err != nil {
		return err
	}
	return judge(os.Stdout, report, known)
}

// startControllers starts Wheelhouse, and kube-controller-manager with those
// controllers that Wheelhouse does not have yet, on a lease of its own.
func (o options) startControllers(ctx context.Context, cp *controlplane.ControlPlane) (end func() error, err error) {
	if o.peer {
		fmt.Println("controllers: kube-controller-manager")
		_, err := cp.StartPeer(ctx, controlplane.PeerOptions{})
		return func() error { return nil }, err
	}
	ours := controllers.All()
	others := []string{"*", "bootstrap-signer-controller", "token-cleaner-controller"}
	for _, d := range ours {
		others = append(others, "-"+d.Name())
	}
	if _, err := cp.StartPeer(ctx, controlplane.PeerOptions{Controllers: others}); err != nil {
		return nil, err
	}
	d, err := daemon.Start(daemon.Options{
		Binary:       o.binary,
		ControlPlane: cp,
		Config:       func(c *schema.ControllerManagerConfiguration) { c.LeaderElection.ResourceName = "wheelhouse" },
	})
	if err != nil {
		return nil, err
	}
	fmt.Printf("controllers: %d of Wheelhouse, the others of kube-controller-manager\n", len(ours))
	return d.Stop, nil
}

// runTests returns the path of ginkgo's report. That tests fail is no error here.
func (o options) runTests(ctx context.Context, cp *controlplane.ControlPlane, programs map[string]string) (report string, err error) {
	kubeconfig, err := cp.Kubeconfig("admin", "system:masters")
	if err != nil {
		return "", err
	}
	const name = "report.json"
	log, err := os.Create(filepath.Join(o.dir, "tests.log"))
	if err != nil {
		return "", err
	}
	defer log.Close() // the report counts, not the log
	fmt.Printf("tests: %s; log: %s\n", o.focus, log.Name())
	command := exec.CommandContext(ctx, programs[controlplane.Ginkgo],
		"--procs="+strconv.Itoa(o.procs), "--timeout="+o.timeout.String(), "--no-color",
		"--focus="+o.focus, "--output-dir="+o.dir, "--json-report="+name, programs[controlplane.E2ETests], "--",
		"--provider=skeleton", "--kubeconfig="+kubeconfig, "--num-nodes="+strconv.Itoa(o.nodes),
		"--allowed-not-ready-nodes=0", "--minStartupPods=0", "--disable-log-dump=true", "--report-dir=",
	)
	command.Dir = o.dir
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = time.Minute
	begin := time.Now()
	var failed *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &failed) {
		return "", fmt.Errorf("run the tests: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	report = filepath.Join(o.dir, name)
	if _, err := os.Stat(report); err != nil {
		return "", fmt.Errorf("the tests did not run, see %s: %w", log.Name(), err)
	}
	fmt.Printf("tests: ended after %s\n", time.Since(begin).Round(time.Second))
	return report, nil
}

// short is the first line of text, for a list.
func short(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	const most = 200
	if len(line) > most {
		return line[:most] + "…"
	}
	return line
}
