package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// statusTimeout bounds the whole request.
const statusTimeout = 10 * time.Second

// statusFlags say which daemon to ask, and as whom.
type statusFlags struct {
	server     string
	kubeconfig string
	caFile     string
	insecure   bool
	all        bool
	format     string
}

// controllersReply is the reply of /debug/controllers.
type controllersReply struct {
	Controllers []struct {
		Name    string    `json:"name"`
		State   string    `json:"state"`
		Since   time.Time `json:"since"`
		Reason  string    `json:"reason"`
		Workers struct {
			Wanted  int `json:"wanted"`
			Running int `json:"running"`
			Busy    int `json:"busy"`
		} `json:"workers"`
		Queue struct {
			Depth         int     `json:"depth"`
			OldestSeconds float64 `json:"oldestSeconds"`
		} `json:"queue"`
		Restarts  int    `json:"restarts"`
		LastError string `json:"lastError"`
	} `json:"controllers"`
}

func newStatusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the controllers of a running daemon",
		Long: `Show the controllers of a running daemon, with the credentials of a kubeconfig file.
The caller needs to be allowed to get the non-resource URL /debug/controllers.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.show(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().StringVar(&f.server, "server", "https://127.0.0.1:10257", "URL of the daemon")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "path of the kubeconfig file with the caller's credentials (default: as kubectl finds it)")
	cmd.Flags().StringVar(&f.caFile, "certificate-authority", "", "CA of the daemon's certificate (default: the cluster's)")
	cmd.Flags().BoolVar(&f.insecure, "insecure-skip-tls-verify", false, "accept any certificate, such as the self-signed one")
	cmd.Flags().BoolVar(&f.all, "all", false, "show controllers that are Unavailable too, such as those that this build does not have")
	cmd.Flags().StringVarP(&f.format, "output", "o", "table", "table or json")
	return cmd
}

func (f *statusFlags) show(ctx context.Context, out io.Writer) error {
	if f.format != "table" && f.format != "json" {
		return usageError{fmt.Errorf("--output %q: want table or json", f.format)}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	body, err := f.get(ctx, "/debug/controllers")
	if err != nil {
		return err
	}
	if f.format == "json" {
		_, err = out.Write(body)
		return err
	}
	var reply controllersReply
	if err := json.Unmarshal(body, &reply); err != nil {
		return fmt.Errorf("read the reply of %s: %w", f.server, err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSTATE\tSINCE\tBUSY/WORKERS\tQUEUE\tRESTARTS\tREASON")
	hidden := 0
	for _, c := range reply.Controllers {
		if c.State == "Unavailable" && !f.all {
			hidden++
			continue
		}
		reason := c.Reason
		if c.LastError != "" {
			reason = c.LastError
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d/%d\t%d\t%d\t%s\n", c.Name, c.State,
			time.Since(c.Since).Round(time.Second), c.Workers.Busy, c.Workers.Wanted, c.Queue.Depth, c.Restarts, reason)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if hidden > 0 {
		_, err = fmt.Fprintf(out, "%d more are Unavailable; --all shows them\n", hidden)
	}
	return err
}

// get asks the daemon for one path.
func (f *statusFlags) get(ctx context.Context, path string) ([]byte, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.server+path, http.NoBody)
	if err != nil {
		return nil, usageError{fmt.Errorf("--server %q: %w", f.server, err)}
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // only read from
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the reply of %s: %w", f.server, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s%s answered %s: %.300s", f.server, path, response.Status, body)
	}
	return body, nil
}

// client has the kubeconfig's credentials and talks to the daemon.
func (f *statusFlags) client() (*http.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loaded, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no kubeconfig with the caller's credentials: give --kubeconfig FILE, or set KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("load the caller's credentials: %w", err)
	}
	c := rest.CopyConfig(loaded)
	c.Host = f.server
	c.TLSClientConfig.ServerName = ""
	if f.caFile != "" {
		c.TLSClientConfig.CAData, c.TLSClientConfig.CAFile = nil, f.caFile
	}
	if f.insecure {
		c.TLSClientConfig.Insecure = true
		c.TLSClientConfig.CAData, c.TLSClientConfig.CAFile = nil, ""
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return client, nil
}
