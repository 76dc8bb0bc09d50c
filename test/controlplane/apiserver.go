package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startTimeout of one program. Generous, since test machines are busy.
const startTimeout = 90 * time.Second

func (cp *ControlPlane) startEtcd(ctx context.Context, program string) (url string, err error) {
	client, err := cp.port()
	if err != nil {
		return "", err
	}
	peer, err := cp.port()
	if err != nil {
		return "", err
	}
	url, peerURL := "http://127.0.0.1:"+client.String(), "http://127.0.0.1:"+peer.String()
	cp.etcd, err = cp.launch(etcdProgram, program, []string{
		"--data-dir=" + filepath.Join(cp.dir, "etcd"),
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=default=" + peerURL,
		"--socket-reuse-port=true",
		"--unsafe-no-fsync",
		"--log-level=error",
	})
	if err != nil {
		return "", err
	}
	return url, cp.etcd.waitUntil(ctx, "healthy", func(ctx context.Context) error {
		return httpOK(ctx, http.DefaultClient, url+"/health")
	})
}

// APIServer is the kube-apiserver of a control plane. It keeps its port and
// its data when it is stopped and started again.
type APIServer struct {
	*Process
	// URL is where it serves.
	URL string

	cp *ControlPlane
}

func (cp *ControlPlane) startAPIServer(ctx context.Context, program, etcdURL string, o Options) error {
	secure, err := cp.port()
	if err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		"--secure-port=" + secure.String(),
		"--permit-port-sharing=true",
		"--endpoint-reconciler-type=none", // it refuses loopback addresses
		"--tls-cert-file=" + cp.PKI.servingCertFile,
		"--tls-private-key-file=" + cp.PKI.servingKeyFile,
		"--client-ca-file=" + cp.PKI.CAFile,
		"--authorization-mode=" + cmp.Or(o.AuthorizationMode, "Node,RBAC"),
		"--service-cluster-ip-range=10.0.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + cp.PKI.ServiceAccountKeyFile,
		"--service-account-key-file=" + cp.PKI.ServiceAccountKeyFile,
		"--requestheader-client-ca-file=" + cp.PKI.CAFile,
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--allow-privileged=true",
		"--profiling=false",
	}
	if !o.ServiceAccountAdmission {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if o.Audit {
		policy := filepath.Join(cp.dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return fmt.Errorf("write the audit policy: %w", err)
		}
		cp.audit = &AuditLog{path: filepath.Join(cp.logs(), "audit.log")}
		args = append(args, "--audit-policy-file="+policy, "--audit-log-path="+cp.audit.path, "--audit-log-mode=blocking")
	}
	args = append(args, o.APIServerArgs...)
	cp.APIServer = &APIServer{URL: "https://127.0.0.1:" + secure.String(), cp: cp}
	if cp.APIServer.Process, err = cp.launch(apiServerProgram, program, args); err != nil {
		return err
	}
	return cp.APIServer.waitReady(ctx)
}

// Start starts a stopped API server again and returns when it is ready.
func (a *APIServer) Start(ctx context.Context) error {
	if err := a.cp.audit.complete(); err != nil {
		return err
	}
	if err := a.Process.Start(); err != nil {
		return err
	}
	return a.waitReady(ctx)
}

func (a *APIServer) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(a.cp.AdminConfig())
	if err != nil {
		return fmt.Errorf("%s: %w", apiServerProgram, err)
	}
	return a.waitUntil(ctx, "ready", func(ctx context.Context) error {
		if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err
		}
		// Leases and service accounts of controllers live here.
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	})
}

// waitUntil returns when check succeeds, and fails when the program ends, the
// context ends or the start takes too long.
func (p *Process) waitUntil(ctx context.Context, state string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not %s after %s", state, startTimeout))
	defer cancel()
	exited := p.Exited()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		attempt, cancelAttempt := context.WithTimeout(ctx, 5*time.Second)
		last = check(attempt)
		cancelAttempt()
		if last == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-exited:
			return p.failure(errors.New("ended before it was " + state))
		case <-ctx.Done():
			return p.failure(errors.Join(context.Cause(ctx), last))
		}
	}
}

func httpOK(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() // not read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}

// fileName makes a user's name fit for a file.
func fileName(user string) string {
	return strings.NewReplacer(":", "-", "/", "-").Replace(user)
}
