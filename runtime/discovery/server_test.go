package discovery_test

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// longTime bounds what should take seconds, on a machine that is busy.
const longTime = 2 * time.Minute

// answers counts a client's requests by status.
type answers struct {
	next http.RoundTripper

	mu    sync.Mutex
	count map[int]int
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.count[response.StatusCode]++
	}
	return response, err
}

func (a *answers) get(status int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[status]
}

// start polling cp every 100 ms.
func start(t *testing.T, cp *controlplane.ControlPlane) (*discovery.Discovery, *answers) {
	t.Helper()
	config := rest.CopyConfig(cp.AdminConfig())
	counted := &answers{count: map[int]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { counted.next = next; return counted })
	config.Wrap(discovery.Conditional)
	client, err := clientdiscovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	d := discovery.New(discovery.Options{Client: client, Interval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(run(d))
	select {
	case <-d.Ready():
	case <-time.After(longTime):
		t.Fatal("not ready: ", d.Err())
	}
	return d, counted
}

// waitUntil served is what it is wanted to be, by the channel of changes.
func waitUntil(t *testing.T, d *discovery.Discovery, gvr schema.GroupVersionResource, served bool) {
	t.Helper()
	deadline := time.After(longTime)
	for {
		resources, changed := d.Resources()
		if _, ok := resources[gvr]; ok == served {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s served: still %t", gvr, !served)
		}
	}
}

func TestUnchangedDiscoveryIsNotSentAgain(t *testing.T) {
	cp := controlplane.Shared(t)
	d, counted := start(t, cp)
	resources, _ := d.Resources()
	deployments := resources[schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}]
	if deployments.Kind != "Deployment" || !deployments.Namespaced || len(deployments.Verbs) == 0 {
		t.Errorf("deployments: %+v", deployments)
	}
	if _, ok := resources[schema.GroupVersionResource{Version: "v1", Resource: "nodes"}]; !ok || len(resources) < 50 {
		t.Errorf("nodes served: %t, of %d resources", ok, len(resources))
	}
	deadline := time.After(longTime)
	for counted.get(http.StatusNotModified) < 20 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("answers %v", counted.count)
		}
	}
	if got := counted.get(http.StatusOK); got != 2 {
		t.Errorf("%d documents sent in 10 polls, want 2", got)
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
	if after, _ := d.Resources(); len(after) != len(resources) {
		t.Errorf("%d resources from answers that were not sent, %d from those that were", len(after), len(resources))
	}
}

func TestCustomResourceComesAndGoes(t *testing.T) {
	cp := controlplane.Shared(t)
	d, _ := start(t, cp)
	crds := apiextensions.NewForConfigOrDie(cp.AdminConfig()).ApiextensionsV1().CustomResourceDefinitions()
	gvr := schema.GroupVersionResource{Group: "discovery.example.com", Version: "v1", Resource: "widgets"}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.discovery.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvr.Group,
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	for range 2 {
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, d, gvr, true)
		if resources, _ := d.Resources(); resources[gvr].Kind != "Widget" || resources[gvr].Namespaced {
			t.Errorf("%+v", resources[gvr])
		}
		if err := crds.Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, d, gvr, false)
	}
}

// An aggregated API whose server is down has not vanished.
func TestAggregatedAPIThatIsDownIsStillServed(t *testing.T) {
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	gv := schema.GroupVersion{Group: "aggregated.example.com", Version: "v1"}
	backend := aggregatedServer(t, gv)
	_, portText, err := net.SplitHostPort(backend.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(portText, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	namespace := cp.Namespace(t)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "backend"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	apiServices := dynamic.NewForConfigOrDie(cp.AdminConfig()).Resource(
		schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	name := gv.Version + "." + gv.Group
	_, err = apiServices.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": namespace, "name": "backend", "port": port},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := start(t, cp)
	gadgets := gv.WithResource("gadgets")
	waitUntil(t, d, gadgets, true)

	backend.Close()
	deadline := time.After(2 * longTime)
	for d.Err() == nil {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatal("the API server does not report its group as stale")
		}
	}
	_, changed := d.Resources()
	select {
	case <-changed:
		t.Error("an API that is down looks like a change")
	case <-time.After(2 * time.Second): // twenty polls
	}
	if !d.Served(gadgets) {
		t.Error("an API that is down looks as if it had vanished")
	}
	if err := apiServices.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, d, gadgets, false)
}

// aggregatedServer serves the discovery of one resource, gadgets.
func aggregatedServer(t *testing.T, gv schema.GroupVersion) *httptest.Server {
	t.Helper()
	legacy := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: gv.String(),
		APIResources: []metav1.APIResource{{Name: "gadgets", SingularName: "gadget", Kind: "Gadget", Verbs: metav1.Verbs{"list"}}},
	}
	aggregated := apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"},
		Items: []apidiscovery.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Group},
			Versions: []apidiscovery.APIVersionDiscovery{{
				Version: gv.Version,
				Resources: []apidiscovery.APIResourceDiscovery{{
					Resource: "gadgets", SingularResource: "gadget", Scope: apidiscovery.ScopeCluster, Verbs: []string{"list"},
					ResponseKind: &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: "Gadget"},
				}},
			}},
		}},
	}
	answer := func(w http.ResponseWriter, contentType string, body any) {
		w.Header().Set("Content-Type", contentType)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, clientdiscovery.AcceptV2, aggregated)
	})
	mux.HandleFunc("/apis/"+gv.String(), func(w http.ResponseWriter, _ *http.Request) {
		answer(w, "application/json", legacy)
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	return server
}
