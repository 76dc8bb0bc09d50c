package e2e

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

const (
	// soon is ample for what must come on a busy machine, late for much of it.
	soon = 2 * time.Minute
	late = 5 * time.Minute
)

// start runs a daemon that stands for a lease of its own until the test ends.
func start(t *testing.T, cp *controlplane.ControlPlane, o daemon.Options) *daemon.Daemon {
	t.Helper()
	o.Binary, o.ControlPlane = cmp.Or(o.Binary, binary), cp
	change := o.Config
	o.Config = func(c *schema.ControllerManagerConfiguration) {
		c.LeaderElection.ResourceName = "e2e"
		if change != nil {
			change(c)
		}
	}
	d, err := daemon.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Errorf("stop the daemon: %v", err)
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.Log())
		}
	})
	return d
}

// eventually waits until condition returns nil.
func eventually(t *testing.T, within time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, within, last)
	}
}

// deployment has pods that a simulated node runs at once.
func deployment(namespace, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
			},
		},
	}
}

// available waits for all replicas of a Deployment.
func available(ctx context.Context, client kubernetes.Interface, namespace, name string, replicas int32) error {
	d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if d.Status.AvailableReplicas != replicas || d.Status.UpdatedReplicas != replicas || d.Status.Replicas != replicas {
		return fmt.Errorf("status %+v", d.Status)
	}
	return nil
}

func TestADeploymentBecomesAvailable(t *testing.T) {
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	start(t, cp, daemon.Options{})

	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment(namespace, "web", 5), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, "deployment available", func(ctx context.Context) error {
		return available(ctx, client, namespace, "web", 5)
	})
}
