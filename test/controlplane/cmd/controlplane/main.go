// Command controlplane is behind make run and make test.
//
//	controlplane build
//
// builds the programs of the control plane, unless they are in the cache.
//
//	controlplane run [-nodes N] [-dir DIR] [-daemon PATH]
//
// runs a control plane with simulated nodes and a Wheelhouse beside it, whose
// files are in DIR, until it is interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	const usage = "expected one of: build, run"
	if len(args) == 0 {
		return fmt.Errorf("no command; %s", usage)
	}
	switch args[0] {
	case "build":
		_, err := controlplane.Programs(ctx, os.Stderr)
		return err
	case "run":
		flags := flag.NewFlagSet("controlplane run", flag.ExitOnError)
		var o playground
		flags.IntVar(&o.nodes, "nodes", 4, "number of simulated nodes")
		flags.StringVar(&o.dir, "dir", ".run", "directory of the configuration, kubeconfigs, certificates and logs")
		flags.StringVar(&o.daemon, "daemon", "bin/controller-manager", "the daemon")
		flags.StringVar(&o.config, "config", "controller-manager.yaml", "the configuration that the daemon gets a copy of")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return o.run(ctx)
	default:
		return fmt.Errorf("unknown command %q; %s", args[0], usage)
	}
}
