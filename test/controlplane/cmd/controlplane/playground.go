package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/term"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// defaultPort is where the daemon serves; another one is taken while this is in use.
const defaultPort = 10257

// publicPaths can be read in a browser without a client certificate, on
// loopback. Metrics, profiles and everything that changes something need one.
const publicPaths = "[/healthz, /readyz, /livez, /, /configz*, /debug/controllers*, /debug/reloads, /debug/leader, /debug/informers]"

// playground is a control plane with a Wheelhouse beside it.
type playground struct {
	nodes               int
	dir, daemon, config string
}

// files of the playground, in its directory.
type files struct {
	adminKubeconfig, daemonKubeconfig, config    string
	ca, adminCert, adminKey, serveCert, serveKey string
}

func (o *playground) run(ctx context.Context) (err error) {
	if err := o.resolve(); err != nil {
		return err
	}
	unlock, err := lock(o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	cp, err := o.startControlPlane(ctx)
	if err != nil {
		return unlessInterrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	port, err := freePort(defaultPort)
	if err != nil {
		return err
	}
	f := o.files()
	if err := o.write(cp, f, port); err != nil {
		return err
	}
	daemon := controlplane.NewProcess("controller-manager", o.daemon, []string{"--config", f.config},
		filepath.Join(o.dir, "controller-manager.log"))
	output := newPrefixWriter(os.Stdout, "controller-manager", term.IsTerminal(int(os.Stdout.Fd())))
	daemon.TeeTo(output)
	o.explain(f, port)
	if err := daemon.Start(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		fmt.Println("\nstopping")
		return daemon.Stop()
	case <-daemon.Exited():
		return fmt.Errorf("the daemon has ended; its log is %s", daemon.LogPath())
	case <-cp.APIServer.Exited():
		return errors.Join(fmt.Errorf("the API server has ended; its log is %s", cp.APIServer.LogPath()), daemon.Stop())
	}
}

// unlessInterrupted makes an interruption no failure.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (o *playground) resolve() (err error) {
	for _, path := range []*string{&o.dir, &o.daemon, &o.config} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if _, err := os.Stat(o.daemon); err != nil {
		return fmt.Errorf("find the daemon, which make build builds: %w", err)
	}
	return nil
}

func (o *playground) startControlPlane(ctx context.Context) (*controlplane.ControlPlane, error) {
	dir := filepath.Join(o.dir, "controlplane")
	// What an earlier run stored belongs to its certificates.
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	begin := time.Now()
	fmt.Printf("starting etcd, kube-apiserver, kube-scheduler and %d simulated nodes\n", o.nodes)
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir:                     dir,
		Nodes:                   o.nodes,
		Scheduler:               true,
		ServiceAccountAdmission: true,
		Progress:                os.Stdout,
	})
	if err == nil {
		fmt.Printf("ready after %s\n", time.Since(begin).Round(100*time.Millisecond))
	}
	return cp, err
}

func (o *playground) files() files {
	in := func(name string) string { return filepath.Join(o.dir, name) }
	return files{
		adminKubeconfig:  in("admin.kubeconfig"),
		daemonKubeconfig: in("controller-manager.kubeconfig"),
		config:           in("controller-manager.yaml"),
		ca:               in("ca.crt"),
		adminCert:        in("admin.crt"),
		adminKey:         in("admin.key"),
		serveCert:        in("controller-manager.crt"),
		serveKey:         in("controller-manager.key"),
	}
}

func (o *playground) write(cp *controlplane.ControlPlane, f files, port int) error {
	ca, err := os.ReadFile(cp.PKI.CAFile)
	if err != nil {
		return err
	}
	config, err := os.ReadFile(o.config)
	if err != nil {
		return err
	}
	edited, err := edit(config, map[string]string{
		"cluster.kubeconfig":                    strconv.Quote(f.daemonKubeconfig),
		"server.bindAddress":                    "127.0.0.1",
		"server.port":                           strconv.Itoa(port),
		"server.tls.certFile":                   strconv.Quote(f.serveCert),
		"server.tls.keyFile":                    strconv.Quote(f.serveKey),
		"server.authorization.alwaysAllowPaths": publicPaths,
		"logging.format":                        "text",

		"controllers.certificatesigningrequest-signing-controller.certFile": strconv.Quote(cp.PKI.CAFile),
		"controllers.certificatesigningrequest-signing-controller.keyFile":  strconv.Quote(cp.PKI.CAKeyFile),
		"controllers.serviceaccount-token-controller.keyFile":               strconv.Quote(cp.PKI.ServiceAccountKeyFile),
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", o.config, err)
	}
	return errors.Join(
		os.WriteFile(f.ca, ca, 0o600),
		os.WriteFile(f.config, edited, 0o600),
		cp.WriteKubeconfig(f.adminKubeconfig, "admin", "system:masters"),
		cp.WriteKubeconfig(f.daemonKubeconfig, "system:kube-controller-manager"),
		cp.WriteClientCertificate(f.adminCert, f.adminKey, "admin", "system:masters"),
		cp.WriteServingCertificate(f.serveCert, f.serveKey, "controller-manager"),
	)
}

// freePort returns wanted, or another port while something listens on it.
func freePort(wanted int) (int, error) {
	for _, port := range []int{wanted, 0} {
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		address, ok := listener.Addr().(*net.TCPAddr)
		if err := listener.Close(); err != nil || !ok {
			return 0, fmt.Errorf("find a port for the daemon: %w", err)
		}
		return address.Port, nil
	}
	return 0, errors.New("find a port for the daemon: none is free")
}

// explain says what can be done now.
func (o *playground) explain(f files, port int) {
	show := func(path string) string {
		if wd, err := os.Getwd(); err == nil {
			if relative, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(relative) {
				return relative
			}
		}
		return path
	}
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	curl := fmt.Sprintf("curl --cacert %s --cert %s --key %s", show(f.ca), show(f.adminCert), show(f.adminKey))
	fmt.Printf(`
Wheelhouse starts beside a control plane with %d simulated nodes. Try, in another terminal:

  export KUBECONFIG=%s
  kubectl create deployment hello --image=hello --replicas=20
  kubectl expose deployment hello --port=80
  kubectl get deployments,pods,endpointslices

Edit %s and save it, and watch the log below; for example

  sed -i '/^  deployment-controller:/,/workers:/s/workers: .*/workers: 20/' %[3]s
  sed -i '/^  replicaset-controller:/,/enabled:/s/enabled: .*/enabled: false/' %[3]s

Look at it:

  %s %s/configz
  %[4]s %[5]s/debug/controllers
  %[4]s %[5]s/debug/reloads
  %[4]s %[5]s/metrics

or at the status page, %[5]s/ (its certificate is signed by %s).

Ctrl-C stops everything.

`, o.nodes, show(f.adminKubeconfig), show(f.config), curl, url, show(f.ca))
}
