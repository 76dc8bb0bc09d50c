package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// peerUser is the identity of kube-controller-manager. Its controllers use
// service accounts in kube-system instead, for most of what they do.
const peerUser = "system:kube-controller-manager"

// PeerOptions of a kube-controller-manager. The zero value runs all
// controllers with leader election and per-controller credentials.
type PeerOptions struct {
	// Controllers is the value of --controllers.
	// Default: *,bootstrap-signer-controller,token-cleaner-controller.
	Controllers []string
	// Args are further flags.
	Args []string
	// Name tells several peers apart, in log names. Default: kube-controller-manager.
	Name string
}

// Peer is a running kube-controller-manager. It ends with the control plane at the latest.
type Peer struct {
	*Process
	// URL is where it serves /metrics, /configz and /healthz.
	URL string
}

// StartPeer runs the kube-controller-manager of the API server's own version
// and returns when it answers on /healthz; it may not lead by then.
func (cp *ControlPlane) StartPeer(ctx context.Context, o PeerOptions) (*Peer, error) {
	if len(o.Controllers) == 0 {
		o.Controllers = []string{"*", "bootstrap-signer-controller", "token-cleaner-controller"}
	}
	if o.Name == "" {
		o.Name = peerProgram
	}
	programs, err := Programs(ctx, os.Stderr, peerProgram)
	if err != nil {
		return nil, err
	}
	secure, err := cp.port()
	if err != nil {
		return nil, err
	}
	kubeconfig, err := cp.Kubeconfig(peerUser)
	if err != nil {
		return nil, err
	}
	process, err := cp.launch(o.Name, programs[peerProgram], append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + cp.PKI.ServiceAccountKeyFile,
		"--root-ca-file=" + cp.PKI.CAFile,
		"--cluster-signing-cert-file=" + cp.PKI.CAFile,
		"--cluster-signing-key-file=" + cp.PKI.CAKeyFile,
		"--use-service-account-credentials=true",
		"--controllers=" + strings.Join(o.Controllers, ","),
		"--bind-address=127.0.0.1",
		"--secure-port=" + secure.String(),
		"--permit-port-sharing=true",
		"--cert-dir=" + filepath.Join(cp.dir, o.Name+"-certs"),
	}, o.Args...))
	if err != nil {
		return nil, err
	}
	peer := &Peer{Process: process, URL: "https://127.0.0.1:" + secure.String()}
	if err := process.waitHealthy(ctx, peer.URL+"/healthz"); err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	return peer, nil
}

// FromPeer tells whether a request was sent by a kube-controller-manager.
func FromPeer(e auditv1.Event) bool {
	return strings.HasPrefix(e.UserAgent, peerProgram+"/")
}
