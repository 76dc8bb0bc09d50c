package controlplane

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// shared is the one control plane of a test binary.
var shared struct {
	mu      sync.Mutex
	main    bool
	options Options
	started bool
	cp      *ControlPlane
	err     error
}

// Main runs the tests of a package, whose TestMain passes the result to
// os.Exit. The control plane of Shared is started with o by the first test that
// asks for it, and stopped at the end.
func Main(m *testing.M, o Options) int {
	shared.mu.Lock()
	shared.main, shared.options = true, o
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cp != nil {
		if err := shared.cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the control plane:", err)
			return max(code, 1)
		}
	}
	return code
}

// Shared returns the control plane that all tests of the package use. It
// fails the test when TestMain does not call Main.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		t.Fatal("controlplane.Shared needs a TestMain that calls controlplane.Main")
	}
	if !shared.started {
		shared.started = true
		shared.cp, shared.err = Start(context.Background(), shared.options)
	}
	if shared.err != nil {
		t.Fatalf("start the control plane: %v", shared.err)
	}
	return shared.cp
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace creates a namespace for the test and returns its name. It stays
// until the control plane stops: no controller is there that would empty it.
func (cp *ControlPlane) Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	prefix := notInNames.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-")
	prefix = strings.Trim(prefix[:min(len(prefix), 40)], "-")
	namespace, err := client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	return namespace.Name
}
