// Command controller-manager runs Kubernetes' controllers as one configuration
// file says, and follows the file while it runs.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFine   = 0
	exitFailed = 1
	exitUsage  = 2
)

// version is set by the linker; empty in development builds.
var version string

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command and returns the exit code.
func execute(args []string, out, errOut io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.Execute()
	var usage usageError
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(errOut, "%v\nRun '%s --help' for usage.\n", err, root.Name())
		return exitUsage
	default:
		fmt.Fprintln(errOut, err)
		return exitFailed
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exactly accepts n arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n && cmd.HasSubCommands() {
			err := fmt.Errorf("unknown command %q for %q", args[n], cmd.CommandPath())
			cmd.SuggestionsMinimumDistance = 2 // cobra sets it only for its own errors
			if near := cmd.SuggestionsFor(args[n]); len(near) > 0 {
				err = fmt.Errorf("%w, did you mean %s?", err, strings.Join(near, " or "))
			}
			return usageError{err}
		}
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// newRootCommand makes the command tree.
func newRootCommand() *cobra.Command {
	var o runOptions
	root := &cobra.Command{
		Use:   "controller-manager",
		Short: "Run Kubernetes' controllers as one file says, and follow the file while they run",
		Long: `controller-manager runs Kubernetes' controllers as one configuration file says.
Saving the file starts, stops, restarts or re-sizes single controllers; leadership,
caches and work under way stay.

Values are taken from the defaults, the file, WHEELHOUSE_… environment variables and
--set, the later ones winning. 'controller-manager config view --origin' tells which.`,
		Example: `  controller-manager --config /etc/wheelhouse/controller-manager.yaml
  controller-manager --config controller-manager.yaml --validate-only
  controller-manager --kubeconfig ~/.kube/config --set controllers.deployment.workers=10`,
		Args:          exactly(0),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	o.layers.addFlags(root)
	root.Flags().BoolVar(&o.validateOnly, "validate-only", false, "validate the configuration and exit: 0 valid, 1 invalid")
	root.AddCommand(
		newConfigCommand(),
		newControllersCommand(),
		newStatusCommand(),
		newVersionCommand(),
	)
	return root
}
