package main

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary and of its Kubernetes libraries",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "controller-manager %s\nkubernetes libraries %s\n%s %s/%s\n",
				currentVersion(), dependency("k8s.io/client-go"), goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
			return err
		},
	}
}

// currentVersion is the linker's, or the module's when it was installed by version.
func currentVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// dependency is the version of a linked module.
func dependency(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}
