package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/controllers"
	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show, compare and convert configurations",
		Args:  exactly(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newValidateCommand(), newViewCommand(), newDiffCommand(), newSchemaCommand(), newConvertCommand())
	return cmd
}

func newValidateCommand() *cobra.Command {
	var layers layerFlags
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Report every fault of a configuration, with file, line and column",
		Args:  atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := layers.withFile(args)
			if err != nil {
				return err
			}
			return validate(cmd, options)
		},
	}
	layers.addFlags(cmd)
	return cmd
}

// atMost accepts n arguments or fewer.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.MaximumNArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// withFile takes the file from the first argument or from --config.
func (f *layerFlags) withFile(args []string) (config.Options, error) {
	if len(args) > 0 {
		if f.file != "" && f.file != args[0] {
			return config.Options{}, usageError{fmt.Errorf("two files given, %s and --config %s: name one", args[0], f.file)}
		}
		f.file = args[0]
	}
	return f.options()
}

func validate(cmd *cobra.Command, options config.Options) error {
	snapshot, errs := config.Load(options)
	if len(errs) > 0 {
		return errs
	}
	what := snapshot.Path
	if what == "" {
		what = "the configuration without a file"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", what)
	return err
}

func newViewCommand() *cobra.Command {
	var layers layerFlags
	var origin bool
	var format string
	cmd := &cobra.Command{
		Use:   "view [FILE]",
		Short: "Print the effective configuration, all layers and defaults included",
		Args:  atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := layers.withFile(args)
			if err != nil {
				return err
			}
			snapshot, errs := config.Load(options)
			if len(errs) > 0 {
				return errs
			}
			if origin {
				return printOrigins(cmd.OutOrStdout(), snapshot)
			}
			return printAs(cmd.OutOrStdout(), format, snapshot.Config)
		},
	}
	layers.addFlags(cmd)
	cmd.Flags().BoolVar(&origin, "origin", false, "print each value's path, value, and where it comes from")
	cmd.Flags().StringVarP(&format, "output", "o", "yaml", "yaml or json")
	return cmd
}

// printAs writes v as yaml or json.
func printAs(out io.Writer, format string, v any) error {
	var text []byte
	var err error
	switch format {
	case "yaml":
		text, err = yaml.Marshal(v)
	case "json":
		text, err = json.MarshalIndent(v, "", "  ")
		text = append(text, '\n')
	default:
		return usageError{fmt.Errorf("--output %q: want yaml or json", format)}
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	_, err = out.Write(text)
	return err
}

// printOrigins writes a line per value.
func printOrigins(out io.Writer, snapshot *config.Snapshot) error {
	text, err := json.Marshal(snapshot.Config)
	if err != nil {
		return fmt.Errorf("list the values: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("list the values: %w", err)
	}
	leaves := map[string]any{}
	addLeaves(leaves, "", tree)
	paths := make([]string, 0, len(leaves))
	for path := range leaves {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, path := range paths {
		value, err := json.Marshal(leaves[path])
		if err != nil {
			return fmt.Errorf("print %s: %w", path, err)
		}
		origin, ok := snapshot.Origins[path]
		if !ok {
			origin = schema.Origin{Layer: "default"}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", path, value, origin)
	}
	return table.Flush()
}

// addLeaves adds the values of tree by path; lists and empty maps are values.
func addLeaves(leaves map[string]any, prefix string, tree map[string]any) {
	for key, value := range tree {
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			addLeaves(leaves, prefix+key+".", below)
			continue
		}
		leaves[prefix+key] = value
	}
}

func newDiffCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print what a reload from one file to another would do, controller by controller",
		Long: `Print what a daemon that runs with the file OLD would do when it were replaced by NEW.
Nothing is contacted: a controller whose API the cluster does not serve is shown as if it were served.
Environment variables and --set of the daemon are not known here; give the same ones to compare with them.`,
		Args: exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := load(args[0])
			if err != nil {
				return err
			}
			to, err := load(args[1])
			if err != nil {
				return err
			}
			plan := supervisor.Plan(from.Config, to.Config, supervisor.PlanOptions{Descriptors: controllers.All()})
			return printPlan(cmd.OutOrStdout(), format, plan)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table, yaml or json")
	return cmd
}

// load reads one file with the environment's layer.
func load(path string) (*config.Snapshot, error) {
	snapshot, errs := config.Load(config.Options{Scheme: newScheme(), Path: path, Environ: os.Environ()})
	if len(errs) > 0 {
		return nil, errs
	}
	return snapshot, nil
}

func printPlan(out io.Writer, format string, plan []supervisor.Step) error {
	if format != "table" {
		if plan == nil {
			plan = []supervisor.Step{}
		}
		return printAs(out, format, plan)
	}
	if len(plan) == 0 {
		_, err := fmt.Fprintln(out, "nothing would change")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ACTION\tCONTROLLER OR SETTING\tREASON")
	for _, step := range plan {
		fmt.Fprintf(table, "%s\t%s%s\t%s\n", step.Action, step.Controller, step.Setting, step.Reason)
	}
	return table.Flush()
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file, for editors and checks",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := newScheme().JSONSchema()
			if err != nil {
				return fmt.Errorf("make the JSON Schema: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

func newConvertCommand() *cobra.Command {
	var manifest string
	cmd := &cobra.Command{
		Use:   "convert {--manifest FILE | FILE | -- FLAG...}",
		Short: "Turn kube-controller-manager's flags, manifest or configuration into our file",
		Long: `Turn the configuration of a kube-controller-manager into a file for this program, on standard output.
It is read from a static-pod manifest (--manifest), from a KubeControllerManagerConfiguration (FILE), or from
the flags after --. What could not be carried over is named on standard error, with what to do about it.`,
		Example: `  controller-manager config convert --manifest /etc/kubernetes/manifests/kube-controller-manager.yaml
  controller-manager config convert -- --controllers=*,-ttl-controller --concurrent-deployment-syncs=10`,
		RunE: func(cmd *cobra.Command, args []string) error {
			conversion, err := convert(manifest, cmd.ArgsLenAtDash() >= 0, args)
			if err != nil {
				return err
			}
			for _, note := range conversion.Dropped {
				fmt.Fprintf(cmd.ErrOrStderr(), "not carried over: %s\n", note)
			}
			for _, note := range conversion.Notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", note)
			}
			_, err = cmd.OutOrStdout().Write(conversion.File)
			return err
		},
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "path of the static-pod manifest")
	return cmd
}

func convert(manifest string, flags bool, args []string) (schema.Conversion, error) {
	switch {
	case manifest != "" && len(args) > 0:
		return schema.Conversion{}, usageError{errors.New("--manifest and arguments given: name one source")}
	case manifest != "":
		data, err := os.ReadFile(manifest)
		if err != nil {
			return schema.Conversion{}, fmt.Errorf("read the manifest: %w", err)
		}
		return newScheme().ConvertManifest(data)
	case flags:
		return newScheme().ConvertCommandLine(args)
	case len(args) == 1:
		snapshot, err := load(args[0])
		if err != nil {
			return schema.Conversion{}, err
		}
		file, err := yaml.Marshal(snapshot.Config)
		if err != nil {
			return schema.Conversion{}, fmt.Errorf("print as yaml: %w", err)
		}
		return schema.Conversion{File: file}, nil
	default:
		return schema.Conversion{}, usageError{errors.New("nothing to convert: give --manifest FILE, a FILE, or flags after --")}
	}
}
