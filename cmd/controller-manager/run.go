package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wheelhouse-project/wheelhouse/controllers"
	"github.com/wheelhouse-project/wheelhouse/runtime"
	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// layerFlags are the flags that say where the configuration comes from.
type layerFlags struct {
	file       string
	set        []string
	kubeconfig string
	verbosity  int
	command    *cobra.Command
}

func (f *layerFlags) addFlags(cmd *cobra.Command) {
	f.command = cmd
	cmd.Flags().StringVar(&f.file, "config", "", "path of the configuration file; without one the defaults hold")
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set one value, as PATH=VALUE; may be repeated and wins over the file and the environment")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "path of the kubeconfig file; same as --set cluster.kubeconfig=PATH")
	cmd.Flags().IntVarP(&f.verbosity, "v", "v", 0, "log verbosity, 0 to 10; same as --set logging.level=N")
}

// options are the layers that the flags ask for.
func (f *layerFlags) options() (config.Options, error) {
	set := append([]string(nil), f.set...)
	if f.command.Flags().Changed("kubeconfig") {
		quoted, err := json.Marshal(f.kubeconfig)
		if err != nil {
			return config.Options{}, fmt.Errorf("read --kubeconfig: %w", err)
		}
		set = append(set, "cluster.kubeconfig="+string(quoted))
	}
	if f.command.Flags().Changed("v") {
		set = append(set, "logging.level="+strconv.Itoa(f.verbosity))
	}
	return config.Options{Scheme: newScheme(), Path: f.file, Set: set, Environ: os.Environ()}, nil
}

// newScheme knows the sections of all controllers, those of this build included.
func newScheme() *schema.Scheme { return schema.NewScheme() }

// runOptions are the flags of the daemon.
type runOptions struct {
	layers       layerFlags
	validateOnly bool
}

func (o *runOptions) run(cmd *cobra.Command) error {
	layers, err := o.layers.options()
	if err != nil {
		return err
	}
	if o.validateOnly {
		return validate(cmd, layers)
	}
	limitGarbage(os.LookupEnv)
	// A SIGHUP that comes while the manager is being made must not end the process.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	manager, err := runtime.New(runtime.Options{
		Config:        layers,
		Descriptors:   controllers.All(),
		LogWriter:     os.Stderr,
		LogIsTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		Version:       currentVersion(),
	})
	if err != nil {
		return err
	}
	return runUntilSignal(cmd.Context(), signals, manager)
}

// runUntilSignal ends the manager cleanly at the first SIGTERM or SIGINT, and
// the process at the second. SIGHUP looks at the file.
func runUntilSignal(ctx context.Context, signals <-chan os.Signal, manager *runtime.Manager) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithCancel(ctx)
	var handler sync.WaitGroup
	ended := make(chan struct{})
	handler.Go(func() {
		for {
			select {
			case <-ended:
				return
			case s := <-signals:
				switch {
				case s == syscall.SIGHUP:
					manager.Reload()
				case ctx.Err() == nil:
					cancel()
				default:
					os.Exit(exitFailed)
				}
			}
		}
	})
	err := manager.Run(ctx)
	close(ended)
	handler.Wait()
	cancel()
	return err
}
