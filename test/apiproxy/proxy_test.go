package apiproxy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, controlplane.Options{})) }

// soon is ample for what must come on a busy machine.
const soon = 2 * time.Minute

var configMaps = schema.GroupResource{Resource: "configmaps"}

// start returns a proxy and a client of it, as user.
func start(t *testing.T, scope apiproxy.Scope, user string, groups ...string) (*apiproxy.Proxy, kubernetes.Interface) {
	t.Helper()
	proxy, err := apiproxy.Start(controlplane.Shared(t), scope)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	path, err := proxy.Kubeconfig(t.TempDir(), user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return proxy, kubernetes.NewForConfigOrDie(config)
}

func create(t *testing.T, namespace, name string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(controlplane.Shared(t).AdminConfig())
	_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// next waits for the next event of a watch; nil when none comes within a time.
func next(t *testing.T, w watch.Interface, within time.Duration) *watch.Event {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("watch ended")
		}
		return &event
	case <-timer.C:
		return nil
	}
}

func TestIdentityIsKept(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Shared(t).Namespace(t)
	_, jane := start(t, apiproxy.Scope{}, "jane", "readers")
	_, err := jane.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	want := fmt.Sprintf(`pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace %q`, namespace)
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	_, admin := start(t, apiproxy.Scope{}, "root", "system:masters")
	if _, err := admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a member of system:masters: %v", err)
	}
}

func TestScopeShowsOneNamespace(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	mine, other := cp.Namespace(t), cp.Namespace(t)
	create(t, mine, "mine")
	create(t, other, "other")
	_, client := start(t, apiproxy.Scope{Namespace: mine}, "root", "system:masters")

	list, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "mine" {
		t.Errorf("listed %d config maps, want the one of the scope", len(list.Items))
	}
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(namespaces.Items) != 1 || namespaces.Items[0].Name != mine {
		t.Errorf("listed %d namespaces, want the one of the scope", len(namespaces.Items))
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list what has no namespace: %v", err)
	}
}

func TestWatchesAreHeldAndDelayed(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Shared(t).Namespace(t)
	proxy, client := start(t, apiproxy.Scope{}, "root", "system:masters")
	watching, err := client.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()

	create(t, namespace, "first")
	if event := next(t, watching, soon); event == nil {
		t.Fatal("no event through an open gate")
	}
	release := proxy.HoldWatches(configMaps)
	create(t, namespace, "held")
	if event := next(t, watching, 300*time.Millisecond); event != nil {
		t.Errorf("a held watch delivered %s", event.Type)
	}
	release()
	if event := next(t, watching, soon); event == nil {
		t.Error("what was held never came")
	}
	proxy.DelayWatches(configMaps, 500*time.Millisecond)
	begin := time.Now()
	create(t, namespace, "late")
	if event := next(t, watching, soon); event == nil || time.Since(begin) < 500*time.Millisecond {
		t.Errorf("a watch delayed by 500 ms delivered after %s", time.Since(begin))
	}
}

func TestRequestsAreRecordedAnsweredAndHeld(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Shared(t).Namespace(t)
	proxy, client := start(t, apiproxy.Scope{}, "root", "system:masters")
	maps := client.CoreV1().ConfigMaps(namespace)
	object := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}

	stop := proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "create" && r.Resource == configMaps },
		http.StatusTeapot, 0)
	if _, err := maps.Create(t.Context(), object("refused"), metav1.CreateOptions{}); err == nil {
		t.Error("a create that the proxy refuses succeeded")
	}
	stop()
	if _, err := maps.Create(t.Context(), object("made"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	writes := proxy.Requests(apiproxy.Request.Write)
	if len(writes) != 2 || writes[0].Code != http.StatusTeapot || writes[1].Code != http.StatusCreated || writes[1].User != "root" {
		t.Errorf("recorded %+v, want a refused and a successful create of user root", writes)
	}

	// The API server has made the object, and its client cannot know.
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{})
	stop = proxy.After(func(r apiproxy.Request) {
		if r.Name == "unknown" || r.Verb == "create" {
			cancel()
			<-answered
		}
	})
	defer stop()
	if _, err := maps.Create(ctx, object("unknown"), metav1.CreateOptions{}); err == nil {
		t.Error("the client knows an answer that was held back")
	}
	close(answered)
	if _, err := maps.Get(t.Context(), "unknown", metav1.GetOptions{}); err != nil {
		t.Errorf("the object of the held answer: %v", err)
	}
}

func TestConnectionsAreCutAndMended(t *testing.T) {
	t.Parallel()
	namespace := controlplane.Shared(t).Namespace(t)
	proxy, client := start(t, apiproxy.Scope{}, "root", "system:masters")
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		_, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	watching, err := client.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	proxy.Cut()
	if err := get(); err == nil {
		t.Error("a request got through a cut connection")
	}
	select {
	case <-watching.ResultChan():
	case <-time.After(soon):
		t.Error("a watch outlived its connection")
	}
	proxy.Mend()
	if err := get(); err != nil {
		t.Errorf("after mending: %v", err)
	}
}
