package controlplane

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// stages say what the simulated kubelets do: see the comment in each file.
//
//go:embed stages/*.yaml
var stages embed.FS

// podsPerNode is far above a real node's, so that few nodes hold a large rollout.
const podsPerNode = "1000"

// startNodes creates count nodes and runs kwok, which plays their kubelets.
func (cp *ControlPlane) startNodes(ctx context.Context, program string, count int) error {
	config := filepath.Join(cp.dir, "stages.yaml")
	if err := writeStages(config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	for i := range count {
		if _, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node: %w", err)
		}
	}
	kubeconfig, err := cp.Kubeconfig("kwok", "system:masters")
	if err != nil {
		return err
	}
	kwok, err := cp.launch(kwokProgram, program, []string{
		"--kubeconfig=" + kubeconfig,
		"--manage-all-nodes=true",
		"--config=" + config,
		"--node-lease-duration-seconds=40",
		"--cidr=10.244.0.1/16",
	})
	if err != nil {
		return err
	}
	return kwok.waitUntil(ctx, "done with its nodes", func(ctx context.Context) error {
		return admitNodes(ctx, client, count)
	})
}

func node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("256"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods:   resource.MustParse(podsPerNode),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// admitNodes removes the taint that the API server puts on a new node, once
// the node is ready, so that pods are scheduled with no node lifecycle
// controller around.
func admitNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	for i := range count {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			current, err := client.CoreV1().Nodes().Get(ctx, node(i).Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !ready(current) {
				return fmt.Errorf("%s is not ready", current.Name)
			}
			if len(current.Spec.Taints) == 0 {
				return nil
			}
			current.Spec.Taints = nil
			_, err = client.CoreV1().Nodes().Update(ctx, current, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ready(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// writeStages joins the stages into the one file that kwok reads.
func writeStages(path string) error {
	names, err := fs.Glob(stages, "stages/*.yaml")
	if err != nil {
		return fmt.Errorf("write stages: %w", err)
	}
	var joined []byte
	for _, name := range names {
		content, err := stages.ReadFile(name)
		if err != nil {
			return fmt.Errorf("write stages: %w", err)
		}
		joined = append(append(joined, "---\n"...), content...)
	}
	if len(joined) == 0 {
		return errors.New("write stages: there are none")
	}
	if err := os.WriteFile(path, joined, 0o600); err != nil {
		return fmt.Errorf("write stages: %w", err)
	}
	return nil
}

func (cp *ControlPlane) startScheduler(ctx context.Context, program string) error {
	secure, err := cp.port()
	if err != nil {
		return err
	}
	kubeconfig, err := cp.Kubeconfig("system:kube-scheduler")
	if err != nil {
		return err
	}
	scheduler, err := cp.launch(schedulerProgram, program, []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port=" + secure.String(),
		"--permit-port-sharing=true",
		"--cert-dir=" + filepath.Join(cp.dir, "scheduler-certs"),
		// Its default of 50 requests a second would set the pace of every rollout.
		"--kube-api-qps=5000", "--kube-api-burst=5000",
	})
	if err != nil {
		return err
	}
	return scheduler.waitHealthy(ctx, "https://127.0.0.1:"+secure.String()+"/healthz")
}

// waitHealthy waits for a program that serves with a certificate of its own making.
func (p *Process) waitHealthy(ctx context.Context, url string) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // it is on loopback
	defer transport.CloseIdleConnections()
	return p.waitUntil(ctx, "healthy", func(ctx context.Context) error {
		return httpOK(ctx, &http.Client{Transport: transport}, url)
	})
}
