package controlplane

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

func TestNodesRunPodsByTheirCommand(t *testing.T) {
	t.Parallel()
	cp, err := Start(t.Context(), Options{Scheduler: true, Nodes: 2, Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	namespace := cp.Namespace(t)
	pods := kubernetes.NewForConfigOrDie(cp.AdminConfig()).CoreV1().Pods(namespace)

	ready := func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	exitCode := func(p *corev1.Pod) int32 {
		if len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Terminated != nil {
			return p.Status.ContainerStatuses[0].State.Terminated.ExitCode
		}
		return -1
	}
	for _, test := range []struct {
		name    string
		command string
		policy  corev1.RestartPolicy
		job     bool
		want    func(*corev1.Pod) bool
	}{
		{"runs", "", corev1.RestartPolicyAlways, false, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning && ready(p) && p.Status.PodIP != "" && p.Spec.NodeName != ""
		}},
		{"never-ready", "never ready", corev1.RestartPolicyAlways, false, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning && !ready(p)
		}},
		{"fails", "exit 42", corev1.RestartPolicyNever, false, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodFailed && exitCode(p) == 42 && !ready(p)
		}},
		{"succeeds", "exit 0", corev1.RestartPolicyOnFailure, false, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded && exitCode(p) == 0
		}},
		{"restarts", "exit 3", corev1.RestartPolicyOnFailure, false, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning && p.Status.ContainerStatuses[0].RestartCount >= 2
		}},
		{"job-completes", "", corev1.RestartPolicyNever, true, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded
		}},
		{"job-runs-on", "sleep infinity", corev1.RestartPolicyNever, true, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning && ready(p)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: test.name},
				Spec: corev1.PodSpec{
					RestartPolicy: test.policy,
					Containers:    []corev1.Container{{Name: "c", Image: "none"}},
				},
			}
			if test.command != "" {
				pod.Spec.Containers[0].Args = []string{test.command}
			}
			if test.job {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u"}}
			}
			if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var last *corev1.Pod
			err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true,
				func(ctx context.Context) (done bool, err error) {
					last, err = pods.Get(ctx, test.name, metav1.GetOptions{})
					return err == nil && test.want(last), err
				})
			if err != nil {
				t.Fatalf("%v; last status: %+v", err, last.Status)
			}
			if err := pods.Delete(t.Context(), test.name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true,
				func(ctx context.Context) (bool, error) {
					list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + test.name})
					return err == nil && len(list.Items) == 0, err
				})
			if err != nil {
				t.Errorf("deleted pod stays: %v", err)
			}
		})
	}
}

func TestPeerWorks(t *testing.T) {
	t.Parallel()
	cp, err := Start(t.Context(), Options{Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	peer, err := cp.StartPeer(t.Context(), PeerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := cp.Namespace(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true,
		func(ctx context.Context) (bool, error) {
			list, err := client.CoreV1().ServiceAccounts(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=default"})
			return err == nil && len(list.Items) == 1, err
		})
	if err != nil {
		t.Fatalf("no default service account: %v", err)
	}
	requests, err := cp.Audit().Requests(0, FromPeer)
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) == 0 {
		t.Error("no request of the peer in the audit log")
	}
	if err := peer.Stop(); err != nil {
		t.Error(err)
	}
	if pid := peer.PID(); pid != 0 {
		t.Errorf("the peer still runs, as pid %d", pid)
	}
}
