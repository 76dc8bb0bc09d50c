// Package daemon runs the built binary against a control plane, as tests and
// benchmarks of the whole need it: its file is edited, it is frozen, killed,
// and asked for its state over HTTPS.
package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// bootstrapped is the identity whose rights the API server bootstraps.
const bootstrapped = "system:kube-controller-manager"

// stopGrace is how long a daemon may take to end in order on a busy machine.
const stopGrace = time.Minute

// Build builds the binary into dir and returns its path.
func Build(ctx context.Context, dir string, flags ...string) (string, error) {
	root, err := controlplane.Root()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	path := filepath.Join(dir, "controller-manager")
	args := slices.Concat([]string{"build", "-o", path}, controlplane.BuildFlags(), flags, []string{"./cmd/controller-manager"})
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the daemon: %w\n%s", err, out)
	}
	return path, nil
}

// noteMain lets Go repeat a test when the main package has changed. It keeps the
// results of tests whose packages and opened files are as they were, and this
// package is the only one of the binary that no test can import.
func noteMain() error {
	root, err := controlplane.Root()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	if _, err := os.ReadDir(filepath.Join(root, "cmd", "controller-manager")); err != nil {
		return fmt.Errorf("look at the main package: %w", err)
	}
	return nil
}

// Options of a daemon. Binary and ControlPlane are required.
type Options struct {
	Binary       string
	ControlPlane *controlplane.ControlPlane
	// Name tells several daemons apart. Default: daemon.
	Name string
	// Dir is where its files are. Default: one of its own below the control plane's.
	Dir string
	// Config changes the configuration that the daemon starts with. May be nil.
	Config func(*schema.ControllerManagerConfiguration)
	// Args are further flags.
	Args []string
	// Wrapper is a program, with arguments, that runs the binary by replacing
	// itself. Default: none.
	Wrapper []string
	// User and Groups are its identity. Default: system:kube-controller-manager.
	User   string
	Groups []string
	// Server is the API server's URL. Default: the control plane's.
	Server string
}

// Daemon is a running controller-manager. It ends with the calling process at the latest.
type Daemon struct {
	*controlplane.Process
	// File is its configuration file.
	File string
	// URL of its server.
	URL string

	config *schema.ControllerManagerConfiguration
	http   *http.Client
}

// Start starts the daemon; it may not serve yet when Start returns.
func Start(o Options) (*Daemon, error) {
	if err := noteMain(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "daemon"
	}
	if o.User == "" {
		o.User = bootstrapped
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(o.ControlPlane.Dir(), o.Name)
	}
	// Its log is not beside the files that it follows, or it would wake itself.
	logs := filepath.Join(o.Dir, "logs")
	if err := os.MkdirAll(logs, 0o750); err != nil {
		return nil, fmt.Errorf("make the daemon's directory: %w", err)
	}
	kubeconfig := filepath.Join(o.Dir, "kubeconfig")
	server := o.Server
	if server == "" {
		server = o.ControlPlane.APIServer.URL
	}
	if err := o.ControlPlane.WriteKubeconfigFor(server, kubeconfig, o.User, o.Groups...); err != nil {
		return nil, fmt.Errorf("write the daemon's kubeconfig: %w", err)
	}
	certificate, key := filepath.Join(o.Dir, "admin.crt"), filepath.Join(o.Dir, "admin.key")
	if err := o.ControlPlane.WriteClientCertificate(certificate, key, "admin", "system:masters"); err != nil {
		return nil, fmt.Errorf("write the administrator's certificate: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cfg := schema.NewScheme().Default()
	cfg.Cluster.Kubeconfig = kubeconfig
	cfg.Server.BindAddress = "127.0.0.1"
	cfg.Server.Port = port
	cfg.Server.TLS.ClientCAFile = o.ControlPlane.PKI.CAFile
	setKeys(cfg, o.ControlPlane.PKI)
	if o.Config != nil {
		o.Config(cfg)
	}
	d := &Daemon{
		File:   filepath.Join(o.Dir, "controller-manager.yaml"),
		URL:    "https://127.0.0.1:" + strconv.Itoa(cfg.Server.Port),
		config: cfg,
	}
	if err := d.Write(cfg); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("load the administrator's certificate: %w", err)
	}
	d.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true},
	}}
	command := slices.Concat(o.Wrapper, []string{o.Binary, "--config", d.File}, o.Args)
	d.Process = controlplane.NewProcess(o.Name, command[0], command[1:],
		filepath.Join(logs, o.Name+".log"))
	d.Process.Grace = stopGrace
	if err := d.Process.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	return d, nil
}

// setKeys gives the controllers that sign something what kube-controller-manager has by its flags.
func setKeys(cfg *schema.ControllerManagerConfiguration, pki *controlplane.PKI) {
	for _, section := range cfg.Controllers.Sections {
		switch section := section.(type) {
		case *schema.CertificateSigningRequestSigningController:
			section.CertFile, section.KeyFile = pki.CAFile, pki.CAKeyFile
		case *schema.ServiceAccountTokenController:
			section.KeyFile, section.RootCAFile = pki.ServiceAccountKeyFile, pki.CAFile
		}
	}
}

// freePort asks the kernel for a port that is free now.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	if !ok {
		return 0, fmt.Errorf("find a free port: %T is no TCP address", listener.Addr())
	}
	return address.Port, nil
}

// Config is a copy of the configuration that was written last.
func (d *Daemon) Config() *schema.ControllerManagerConfiguration { return d.config.DeepCopy() }

// Write puts cfg into the daemon's file, by renaming a new file over it.
func (d *Daemon) Write(cfg *schema.ControllerManagerConfiguration) error {
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	d.config = cfg.DeepCopy()
	return d.WriteText(text)
}

// WriteText puts any text into the daemon's file.
func (d *Daemon) WriteText(text []byte) error {
	fresh := d.File + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if err := os.Rename(fresh, d.File); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// Edit changes the daemon's file.
func (d *Daemon) Edit(change func(*schema.ControllerManagerConfiguration)) error {
	cfg := d.Config()
	change(cfg)
	return d.Write(cfg)
}

// Get asks the daemon for a path, as an administrator, and decodes JSON into into.
func (d *Daemon) Get(ctx context.Context, path string, into any) error {
	body, err := d.Body(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the daemon's %s: %w: %.200s", path, err, body)
	}
	return nil
}

// Body is the daemon's answer to a GET of path, which must be 200.
func (d *Daemon) Body(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon for %s: %w", path, err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon for %s: %w", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon for %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return body, fmt.Errorf("ask the daemon for %s: %s: %.300s", path, response.Status, body)
	}
	return body, nil
}

// Log is the last part of the daemon's log.
func (d *Daemon) Log() string {
	text, err := os.ReadFile(d.LogPath())
	if err != nil {
		return err.Error()
	}
	const most = 20_000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return strings.TrimSpace(string(bytes.ToValidUTF8(text, nil)))
}
