package harness

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/runtime"
	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// Manager is the whole daemon in the test's process. It sees everything, so that it needs a
// control plane of its own. It is for what an Engine has not: controllers that
// are unavailable, and the daemon's endpoints.
type Manager struct {
	// Admin may do everything.
	Admin kubernetes.Interface

	t    testing.TB
	url  string
	http *http.Client
}

// ManagerOptions of a Manager. The zero value is the default configuration.
type ManagerOptions struct {
	// Configure changes the default configuration. May be nil.
	Configure func(*schema.ControllerManagerConfiguration)
	// Kubeconfig changes the kubeconfig. May be nil.
	Kubeconfig func(*clientcmdapi.Config)
}

// StartManager starts the daemon with nothing but the controllers given. It
// ends with the test.
func StartManager(t testing.TB, cp *controlplane.ControlPlane, o ManagerOptions, descriptors ...controller.Descriptor) *Manager {
	t.Helper()
	dir := t.TempDir()
	m := &Manager{Admin: Client(t, cp.AdminConfig()), t: t}
	cfg := schema.NewScheme().Default()
	cfg.Cluster.Kubeconfig = filepath.Join(dir, "kubeconfig")
	cfg.Server.BindAddress, cfg.Server.Port = "127.0.0.1", unusedPort(t)
	cfg.Server.TLS.ClientCAFile = cp.PKI.CAFile
	if o.Configure != nil {
		o.Configure(cfg)
	}
	m.url = "https://127.0.0.1:" + strconv.Itoa(cfg.Server.Port)
	m.connect(cp, dir)
	if err := writeKubeconfig(cp, cfg.Cluster.Kubeconfig, o.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "controller-manager.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	manager, err := runtime.New(runtime.Options{
		Config:      config.Options{Scheme: schema.NewScheme(), Path: file},
		Descriptors: descriptors,
		LogWriter:   t.Output(),
		// Other tests log meanwhile.
		LeaveProcessLogs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := manager.Run(ctx); err != nil {
			t.Errorf("the daemon ended: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return m
}

func writeKubeconfig(cp *controlplane.ControlPlane, path string, change func(*clientcmdapi.Config)) error {
	if err := cp.WriteKubeconfig(path, daemonUser); err != nil || change == nil {
		return err
	}
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	change(kubeconfig)
	return clientcmd.WriteToFile(*kubeconfig, path)
}

// connect makes the client of the daemon's server, whose certificate is self-signed.
func (m *Manager) connect(cp *controlplane.ControlPlane, dir string) {
	m.t.Helper()
	certificate, key := filepath.Join(dir, "admin.crt"), filepath.Join(dir, "admin.key")
	if err := cp.WriteClientCertificate(certificate, key, "admin", "system:masters"); err != nil {
		m.t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		m.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}}
	m.t.Cleanup(transport.CloseIdleConnections)
	m.http = &http.Client{Timeout: 10 * time.Second, Transport: transport}
}

// Get asks the daemon's server.
func (m *Manager) Get(ctx context.Context, path string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := m.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, errors.Join(err, response.Body.Close())
}

// AwaitState waits until a controller is in a state for a reason that contains a text.
func (m *Manager) AwaitState(name, state, reason string) {
	m.t.Helper()
	Eventually(m.t, readyWithin, name+" in state "+state, func(ctx context.Context) error {
		_, body, err := m.Get(ctx, "/debug/controllers/"+name)
		if err != nil {
			return err
		}
		var status struct{ State, Reason string }
		if err := json.Unmarshal(body, &status); err != nil {
			return err
		}
		if status.State != state || !strings.Contains(status.Reason, reason) {
			return fmt.Errorf("it is in state %s: %s", status.State, status.Reason)
		}
		return nil
	})
}

func unusedPort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // nothing was accepted
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%T is no TCP address", listener.Addr())
	}
	return address.Port
}
