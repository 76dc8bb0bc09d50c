// Package controlplane runs a real Kubernetes control plane on loopback for
// tests, benchmarks and make run: etcd and kube-apiserver, and on demand
// kube-scheduler, simulated nodes (kwok) and the kube-controller-manager.
//
// In tests, share one API server per test binary and work in namespaces of your own:
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, controlplane.Options{})) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		cp := controlplane.Shared(t)
//		namespace := cp.Namespace(t)
//		client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
//		…
//	}
//
// A test that stops or freezes the API server starts a control plane of its own
// with Start. Admission by ServiceAccount is off unless asked for, so that pods
// can be created in a namespace where no controller has made an account.
//
// The programs are built from source once, into the user's cache directory; see Programs.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options of a control plane. The zero value is an etcd and a kube-apiserver
// for tests of controllers.
type Options struct {
	// Scheduler runs kube-scheduler.
	Scheduler bool
	// Nodes is the number of simulated nodes, named node-0 and so on.
	// Default: 0, and kwok does not run.
	Nodes int
	// Dir holds certificates, data and logs; it is kept. Default: a temporary
	// directory, which Stop removes.
	Dir string
	// Audit makes the API server keep an audit log, see ControlPlane.Audit.
	Audit bool
	// ServiceAccountAdmission turns the API server's admission plugin
	// ServiceAccount on: a pod then needs its service account to exist.
	ServiceAccountAdmission bool
	// AuthorizationMode of the API server. Default: Node,RBAC. The Node authorizer
	// keeps an API server from becoming ready that does not serve resource.k8s.io.
	AuthorizationMode string
	// APIServerArgs are further flags of kube-apiserver.
	APIServerArgs []string
	// Progress is told of builds, which take long. Default: standard error.
	Progress io.Writer
}

// ControlPlane is a running control plane. Stop ends it.
type ControlPlane struct {
	// APIServer can be stopped, started again and frozen.
	APIServer *APIServer
	// PKI are the files that a controller manager may need.
	PKI *PKI

	dir       string
	removeDir bool
	audit     *AuditLog
	etcd      *Process

	mu        sync.Mutex
	processes []*Process
	ports     []*port
}

// Start starts a control plane and returns when it is ready for use. The
// context bounds the start only.
func Start(ctx context.Context, o Options) (_ *ControlPlane, err error) {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	programs, err := Programs(ctx, o.Progress, o.programs()...)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{dir: o.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, cp.Stop())
		}
	}()
	if cp.dir == "" {
		if cp.dir, err = os.MkdirTemp("", "wheelhouse-controlplane-"); err != nil {
			return nil, fmt.Errorf("start the control plane: %w", err)
		}
		cp.removeDir = true
	}
	if cp.dir, err = filepath.Abs(cp.dir); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	// Apart from the files that programs follow, which a write beside them wakes.
	if err = os.MkdirAll(cp.logs(), 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of logs: %w", err)
	}
	if cp.PKI, err = newPKI(filepath.Join(cp.dir, "pki")); err != nil {
		return nil, err
	}
	etcdURL, err := cp.startEtcd(ctx, programs[etcdProgram])
	if err != nil {
		return nil, err
	}
	if err := cp.startAPIServer(ctx, programs[apiServerProgram], etcdURL, o); err != nil {
		return nil, err
	}
	if o.Nodes > 0 {
		if err := cp.startNodes(ctx, programs[kwokProgram], o.Nodes); err != nil {
			return nil, err
		}
	}
	if o.Scheduler {
		if err := cp.startScheduler(ctx, programs[schedulerProgram]); err != nil {
			return nil, err
		}
	}
	return cp, nil
}

func (o Options) programs() []string {
	names := []string{etcdProgram, apiServerProgram}
	if o.Nodes > 0 {
		names = append(names, kwokProgram)
	}
	if o.Scheduler {
		names = append(names, schedulerProgram)
	}
	return names
}

// Stop ends all programs, the last started first, and removes the directory
// unless Options.Dir named it.
func (cp *ControlPlane) Stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	var errs []error
	for i := len(cp.processes) - 1; i >= 0; i-- {
		// Nothing outlives a control plane, so nobody needs a slow, orderly end.
		errs = append(errs, cp.processes[i].Kill())
	}
	for _, p := range cp.ports {
		p.release()
	}
	cp.processes, cp.ports = nil, nil
	if cp.removeDir {
		errs = append(errs, os.RemoveAll(cp.dir))
	}
	return errors.Join(errs...)
}

// Audit is the API server's audit log, nil without Options.Audit.
func (cp *ControlPlane) Audit() *AuditLog { return cp.audit }

// Dir holds the programs' logs, as logs/NAME.log, and their data.
func (cp *ControlPlane) Dir() string { return cp.dir }

func (cp *ControlPlane) logs() string { return filepath.Join(cp.dir, "logs") }

// AdminConfig is for a client that may do everything, without a client-side rate limit.
func (cp *ControlPlane) AdminConfig() *rest.Config {
	return cp.Config("admin", "system:masters")
}

// Config is for a client with a certificate of user in groups, without a
// client-side rate limit.
func (cp *ControlPlane) Config(user string, groups ...string) *rest.Config {
	pair, err := cp.PKI.client(user, groups)
	if err != nil {
		panic(err) // only a faulty template of ours can fail
	}
	return &rest.Config{
		Host:            cp.APIServer.URL,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.PKI.caPEM, CertData: pair.cert, KeyData: pair.key},
	}
}

// Kubeconfig writes a kubeconfig file of user in groups into the control
// plane's directory and returns its path.
func (cp *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	path := filepath.Join(cp.dir, fileName(user)+".kubeconfig")
	return path, cp.WriteKubeconfig(path, user, groups...)
}

// WriteKubeconfig writes a kubeconfig file of user in groups to path. It needs no other file.
func (cp *ControlPlane) WriteKubeconfig(path, user string, groups ...string) error {
	return cp.WriteKubeconfigFor(cp.APIServer.URL, path, user, groups...)
}

// WriteKubeconfigFor is WriteKubeconfig for a server in front of the API server.
func (cp *ControlPlane) WriteKubeconfigFor(server, path, user string, groups ...string) error {
	pair, err := cp.PKI.client(user, groups)
	if err != nil {
		return err
	}
	const cluster = "wheelhouse"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: cp.PKI.caPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return nil
}

// WriteClientCertificate writes the certificate of user in groups and its key
// as PEM files, for programs that take no kubeconfig.
func (cp *ControlPlane) WriteClientCertificate(certPath, keyPath, user string, groups ...string) error {
	pair, err := cp.PKI.client(user, groups)
	if err != nil {
		return err
	}
	return pair.write(certPath, keyPath)
}

// WriteServingCertificate writes a new certificate for a server on loopback,
// and its key, as PEM files.
func (cp *ControlPlane) WriteServingCertificate(certPath, keyPath, name string) error {
	pair, err := cp.PKI.serving(name)
	if err != nil {
		return fmt.Errorf("make a serving certificate for %s: %w", name, err)
	}
	return pair.write(certPath, keyPath)
}

// launch starts a program whose log is in the control plane's directory, and
// which Stop ends.
func (cp *ControlPlane) launch(name, path string, args []string) (*Process, error) {
	p := NewProcess(name, path, args, filepath.Join(cp.logs(), name+".log"))
	if err := p.Start(); err != nil {
		return nil, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.processes = append(cp.processes, p)
	return p, nil
}

// port reserves a port until Stop.
func (cp *ControlPlane) port() (*port, error) {
	p, err := reservePort()
	if err != nil {
		return nil, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.ports = append(cp.ports, p)
	return p, nil
}
