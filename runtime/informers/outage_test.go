package informers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// log collects what is logged.
type log struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buffer.String(), text)
}

func TestCustomResourceComesAndGoes(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	crds := apiextensions.NewForConfigOrDie(cp.AdminConfig()).ApiextensionsV1().CustomResourceDefinitions()
	objects := dynamic.NewForConfigOrDie(cp.AdminConfig())
	gvr := schema.GroupVersionResource{Group: "informers.example.com", Version: "v1", Resource: "widgets"}
	var logged log
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{Logger: logged.logger()})
	lease := pool.Lease("controller")
	defer lease.Release()
	if _, err := lease.Informer(gvr); err == nil || !strings.Contains(err.Error(), "use a metadata informer") {
		t.Errorf("typed informer of a custom resource: error %v", err)
	}
	informer, err := lease.MetadataInformer(gvr)
	if err != nil {
		t.Fatal(err)
	}
	lease.Start()
	eventually(t, "the status says that it is not served", func() bool {
		return strings.Contains(pool.Status()[0].LastError, "could not find the requested resource")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	if err := lease.WaitForSync(ctx, nil); err == nil || !strings.Contains(err.Error(), "could not find the requested resource") {
		t.Errorf("error %v, want one that says what the informer suffers from", err)
	}
	cancel()

	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.informers.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvr.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustSync(t, lease)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "informers.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"},
	}}
	if _, err := objects.Resource(gvr).Namespace("default").Create(t.Context(), widget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "stored", func() bool { return has(t, informer, "default/a") })
	if got := pool.Status()[0]; got.LastError != "" || got.Objects != 1 || !got.Metadata {
		t.Errorf("status %+v", got)
	}
	within(t, longTime, "custom resource", func(ctx context.Context) error { return lease.CatchUp(ctx, time.Now()) })

	if err := crds.Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status says that it is not served", func() bool {
		return strings.Contains(pool.Status()[0].LastError, "could not find the requested resource")
	})
	eventually(t, "its objects are gone", func() bool { return !has(t, informer, "default/a") })
	within(t, longTime, "resource that is gone", func(ctx context.Context) error { return lease.CatchUp(ctx, time.Now()) })
	eventually(t, "both warnings", func() bool { return logged.count("level=WARN") >= 2 })
	if got := logged.count("level=WARN"); got != 2 {
		t.Errorf("%d warnings, want one each time that it is not served:\n%s", got, logged.buffer.String())
	}
	informer.Release()
	if got := pool.Status()[0]; len(got.Users) != 0 {
		t.Errorf("users %v after the release", got.Users)
	}
	if _, err := lease.MetadataInformer(gvr); err != nil {
		t.Errorf("lease again: %v", err)
	}
}

func TestForbiddenResourceIsSaidOnce(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	var logged log
	pool, counted := newPool(t, cp.Config("nobody"), informers.Options{Logger: logged.logger()})
	lease := pool.Lease("controller")
	mustLease(t, lease, secrets)
	lease.Start()
	eventually(t, "three attempts", func() bool { lists, _, _ := counted.counts("secrets"); return lists >= 3 })
	if got := pool.Status()[0].LastError; !strings.Contains(got, `User "nobody" cannot list resource "secrets"`) {
		t.Errorf("last error %q", got)
	}
	if got := logged.count("level=WARN"); got != 1 {
		t.Errorf("%d warnings, want 1:\n%s", got, logged.buffer.String())
	}
	lease.Release()
}

func TestCloseWhileNothingListens(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var logged log
	pool, counted := newPool(t, &rest.Config{Host: "http://" + address}, informers.Options{Logger: logged.logger()})
	lease := pool.Lease("controller")
	for _, gvr := range []schema.GroupVersionResource{configMaps, secrets, roles} {
		mustLease(t, lease, gvr)
	}
	lease.Start()
	eventually(t, "three attempts", func() bool { _, watches, _ := counted.counts("secrets"); return watches >= 3 })
	if got := pool.Status()[0].LastError; !strings.Contains(got, "connection refused") {
		t.Errorf("last error %q", got)
	}
	pool.Close()
	lease.Release()
	if got := logged.count("level=WARN"); got != 1 {
		t.Errorf("%d warnings of three informers, want 1:\n%s", got, logged.buffer.String())
	}
}

func TestAPIServerRestart(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	client := adminClient(t, cp)
	var logged log
	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{Logger: logged.logger()})
	lease := pool.Lease("controller")
	defer lease.Release()
	informer := mustLease(t, lease, configMaps)
	mustLease(t, lease, secrets)
	replays := record(t, informer)
	mustSync(t, lease)
	create(t, client, "default", "before")
	eventually(t, "stored", func() bool { return has(t, informer, "default/before") })

	for n := range 2 {
		name := fmt.Sprint("after-", n)
		if err := cp.APIServer.Stop(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the status says so", func() bool { return strings.Contains(pool.Status()[0].LastError, "connection refused") })
		if !has(t, informer, "default/before") {
			t.Error("the store has lost what it had")
		}
		if err := cp.APIServer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		mark := create(t, client, "default", name)
		within(t, longTime, "restart", func(ctx context.Context) error {
			return lease.WaitForSync(ctx, map[schema.GroupResource]string{configMapResource: mark})
		})
		if !has(t, informer, "default/"+name) {
			t.Error("synced without the write")
		}
	}
	added := map[string]int{}
	for _, event := range replays() {
		added[event]++
	}
	for event, times := range added {
		if times != 1 {
			t.Errorf("%q came %d times", event, times)
		}
	}
	for _, status := range pool.Status() {
		if status.Lists != 0 {
			t.Errorf("%s: %d lists, want none: a new watch goes on where the last one ended", status.Resource, status.Lists)
		}
	}
	eventually(t, "all is well", func() bool { return pool.Status()[0].LastError == "" && pool.Status()[1].LastError == "" })
	if got := logged.count("API server cannot be reached"); got > 2 {
		t.Errorf("%d warnings of two outages:\n%s", got, logged.buffer.String())
	}
}
