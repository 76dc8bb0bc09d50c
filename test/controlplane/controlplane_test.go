package controlplane

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// soon is ample for what must come on a busy machine.
const soon = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(Main(m, Options{Audit: true})) }

func TestUsersHaveTheirOwnIdentity(t *testing.T) {
	t.Parallel()
	cp := Shared(t)
	namespace := cp.Namespace(t)
	ctx := t.Context()

	path, err := cp.Kubeconfig("jane", "readers")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("pods listed by a user without rights: got error %v, want forbidden", err)
	}
	if _, err = kubernetes.NewForConfigOrDie(cp.AdminConfig()).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("pods listed by the administrator: %v", err)
	}
	// The log is written after the answer is sent.
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		requests, err := cp.Audit().Requests(0, func(e auditv1.Event) bool {
			return e.User.Username == "jane" && e.Verb == "list" && e.ObjectRef.Namespace == namespace
		})
		return len(requests) == 1 && requests[0].ResponseStatus.Code == http.StatusForbidden, err
	})
	if err != nil {
		t.Errorf("jane's refused request is not in the audit log: %v", err)
	}
}

func TestAPIServerIsStoppedFrozenAndStartedAgain(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	cp, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}()
	t.Logf("ready after %s", time.Since(begin))
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	get := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := client.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
		return err
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := cp.APIServer.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := get(300 * time.Millisecond); err == nil {
		t.Error("a frozen API server answered")
	}
	if err := cp.APIServer.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := get(soon); err != nil {
		t.Errorf("after resume: %v", err)
	}

	begin = time.Now()
	if err := cp.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %s", time.Since(begin))
	if err := get(time.Second); err == nil {
		t.Error("a stopped API server answered")
	}
	if err := cp.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := get(soon); err != nil {
		t.Errorf("after restart: %v", err)
	}
}
