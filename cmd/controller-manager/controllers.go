package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/wheelhouse-project/wheelhouse/controllers"
)

// controllerInfo is one row of the controllers command.
type controllerInfo struct {
	Name           string   `json:"name"`
	Aliases        []string `json:"aliases"`
	EnabledDefault bool     `json:"enabledByDefault"`
	Workers        int      `json:"workers"`
	InThisBuild    bool     `json:"inThisBuild"`
}

func newControllersCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "List all controllers: name, alias, default, and whether this build has them",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			infos := controllerInfos()
			if format == "json" {
				text, err := json.MarshalIndent(infos, "", "  ")
				if err != nil {
					return fmt.Errorf("print as json: %w", err)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), string(text))
				return err
			}
			if format != "table" {
				return usageError{fmt.Errorf("--output %q: want table or json", format)}
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tALIAS\tDEFAULT\tWORKERS\tIN THIS BUILD")
			for _, i := range infos {
				fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", i.Name, orDash(strings.Join(i.Aliases, ",")),
					choose(i.EnabledDefault, "on", "off"), i.Workers, choose(i.InThisBuild, "yes", "no"))
			}
			return table.Flush()
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return cmd
}

func controllerInfos() []controllerInfo {
	built := map[string]bool{}
	for _, d := range controllers.All() {
		built[d.Name()] = true
	}
	var infos []controllerInfo
	for _, t := range newScheme().SectionTypes() {
		base := t.New().Base()
		infos = append(infos, controllerInfo{
			Name: t.Name, Aliases: t.Aliases, EnabledDefault: base.Enabled, Workers: base.Workers, InThisBuild: built[t.Name],
		})
	}
	return infos
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func choose(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}
