package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/controllers"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

const (
	examples = "../../examples"
	// account is the service account of examples/deployment/rbac.yaml.
	account     = "wheelhouse"
	accountUser = "system:serviceaccount:kube-system:" + account
)

// kustomization is what examples/deployment uses of that format.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Namespace  string   `json:"namespace"`
	Resources  []string `json:"resources"`
	Images     []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
}

func TestTheAPIServerAcceptsTheExamples(t *testing.T) {
	cp := controlplane.Shared(t)
	text, err := os.ReadFile(filepath.Join(examples, "deployment", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k kustomization
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		t.Fatalf("kustomization.yaml: %v", err)
	}
	entries, err := os.ReadDir(filepath.Join(examples, "deployment"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "kustomization.yaml" && !slices.Contains(k.Resources, entry.Name()) {
			t.Errorf("kustomization.yaml leaves out %s", entry.Name())
		}
	}
	files := []string{filepath.Join("static-pod", "wheelhouse.yaml"), filepath.Join("static-pod", "rbac.yaml")}
	for _, resource := range k.Resources {
		files = append(files, filepath.Join("deployment", resource))
	}
	for _, file := range files {
		for _, object := range manifests(t, file) {
			if kind := object.GetKind(); !strings.HasPrefix(kind, "ClusterRole") && object.GetNamespace() != k.Namespace {
				t.Errorf("%s: %s %s is in namespace %q, want %q", file, kind, object.GetName(), object.GetNamespace(), k.Namespace)
			}
			apply(t, cp, object, metav1.DryRunAll)
		}
	}
	if len(k.Images) != 1 {
		t.Fatalf("kustomization.yaml replaces %d images, want 1", len(k.Images))
	}
	image := func(object *unstructured.Unstructured, path ...string) string {
		containers, _, err := unstructured.NestedSlice(object.Object, path...)
		if err != nil || len(containers) != 1 {
			t.Fatalf("%s has %d containers (%v), want 1", object.GetName(), len(containers), err)
		}
		name, _, err := unstructured.NestedString(containers[0].(map[string]any), "image")
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if got := image(manifests(t, "deployment/deployment.yaml")[0], "spec", "template", "spec", "containers"); got != k.Images[0].Name {
		t.Errorf("the deployment's image is %q, but the kustomization replaces %q", got, k.Images[0].Name)
	}
	want := k.Images[0].NewName + ":" + k.Images[0].NewTag
	if got := image(manifests(t, "static-pod/wheelhouse.yaml")[0], "spec", "containers"); got != want {
		t.Errorf("the static pod's image is %q, the deployment's is %q", got, want)
	}
}

func TestTheExamplesConfigurationsAreValid(t *testing.T) {
	for _, file := range []string{exampleConfig(t), filepath.Join(examples, "static-pod", "controller-manager.yaml")} {
		out, err := exec.CommandContext(t.Context(), binary, "config", "validate", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// Beside a kube-controller-manager every controller that this build has must
// start switched off.
func TestTheExamplesSwitchOffWhatThisBuildHas(t *testing.T) {
	for _, file := range []string{exampleConfig(t), filepath.Join(examples, "static-pod", "controller-manager.yaml")} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Controllers map[string]struct {
				Enabled *bool `json:"enabled"`
			} `json:"controllers"`
		}
		if err := yaml.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		for _, built := range controllers.All() {
			if enabled := config.Controllers[built.Name()].Enabled; enabled == nil || *enabled {
				t.Errorf("%s leaves %s on", file, built.Name())
			}
		}
	}
}

// The rights of the examples are enough for everything the daemon does, and it
// asks for no others.
func TestTheExamplesRightsAreSufficient(t *testing.T) {
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	for _, file := range []string{"deployment/rbac.yaml", "deployment/reader.yaml"} {
		for _, object := range manifests(t, file) {
			apply(t, cp, object)
		}
	}
	inForce(t, client)
	position, err := cp.Audit().Position()
	if err != nil {
		t.Fatal(err)
	}
	var example schema.ControllerManagerConfiguration
	text, err := os.ReadFile(exampleConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &struct {
		LeaderElection *schema.LeaderElection `json:"leaderElection"`
	}{&example.LeaderElection}); err != nil {
		t.Fatal(err)
	}
	kubeconfig := tokenKubeconfig(t, cp, account)
	d := start(t, cp, daemon.Options{Config: func(c *schema.ControllerManagerConfiguration) {
		c.Cluster.Kubeconfig = kubeconfig
		c.Server.TLS.ClientCAFile = "" // as the API server publishes it
		c.LeaderElection.ResourceName = example.LeaderElection.ResourceName
		for _, built := range controllers.All() {
			c.Controllers.Sections[built.Name()].Base().Enabled = true
		}
	}})
	for _, built := range controllers.All() {
		state(t, d, built.Name(), "Running")
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment(namespace, "web", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, "deployment available", func(ctx context.Context) error {
		return available(ctx, client, namespace, "web", 3)
	})
	eventually(t, soon, "default service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	eventually(t, soon, "events of the start on the lease", func(ctx context.Context) error {
		events, err := client.CoreV1().Events(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Lease,involvedObject.name=" + example.LeaderElection.ResourceName,
		})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "ControllerStarted" }) {
			return fmt.Errorf("none of %d events tells that a controller started", len(events.Items))
		}
		return nil
	})

	readers(t, cp, d, namespace)
	metricsOfTheRules(t, d)

	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(d.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "forbidden") {
			t.Errorf("the daemon's log tells of a missing right: %s", line)
		}
	}
	refused, err := cp.Audit().Requests(position, func(e auditv1.Event) bool {
		return e.User.Username == accountUser && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range refused {
		t.Errorf("the API server refused: %s %s", e.Verb, e.RequestURI)
	}
}

// inForce returns when the API server has taken in the roles and the bindings of
// the daemon: one right of each.
func inForce(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	for _, right := range []*authorizationv1.ResourceAttributes{
		{Group: "apps", Resource: "deployments", Verb: "list"},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "create", Namespace: metav1.NamespaceSystem},
		{Resource: "configmaps", Name: "extension-apiserver-authentication", Verb: "get", Namespace: metav1.NamespaceSystem},
	} {
		eventually(t, soon, "the right to "+right.Verb+" "+right.Resource, func(ctx context.Context) error {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: accountUser, ResourceAttributes: right},
			}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = errors.New("it has not")
			}
			return err
		})
	}
}

// readers checks who may look at the daemon: nobody whom the cluster does not
// know, and of those whom it knows, who has the role of the examples.
func readers(t *testing.T, cp *controlplane.ControlPlane, d *daemon.Daemon, namespace string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	for _, name := range []string{"sre", "stranger"} {
		object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "wheelhouse-reader-" + namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "wheelhouse-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "sre"}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sre, stranger := token(t, cp, namespace, "sre"), token(t, cp, namespace, "stranger")
	for _, path := range []string{
		"/", "/configz", "/configz/status", "/debug/controllers", "/debug/controllers/deployment-controller", "/debug/informers",
		"/debug/leader", "/debug/reloads", "/metrics", "/metrics/slis",
	} {
		for bearer, want := range map[string]int{sre: http.StatusOK, stranger: http.StatusForbidden, "": http.StatusUnauthorized} {
			eventually(t, soon, fmt.Sprintf("GET %s answers %d", path, want), func(ctx context.Context) error {
				code, body, err := get(ctx, d.URL+path, bearer)
				if err == nil && code != want {
					err = fmt.Errorf("%d: %.200s", code, body)
				}
				return err
			})
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v"} {
		if code, body, err := get(t.Context(), d.URL+path, sre); err != nil || code != http.StatusForbidden {
			t.Errorf("GET %s by a reader: %d, want %d (%v): %.200s", path, code, http.StatusForbidden, err, body)
		}
	}
}

// series finds the names of metrics in a rule's expression.
var series = regexp.MustCompile(`([a-z_]+)\{`)

// metricsOfTheRules checks that the daemon has the metrics that the alert rules use.
func metricsOfTheRules(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	rule := manifests(t, "prometheus/rules.yaml")[0]
	groups, _, err := unstructured.NestedSlice(rule.Object, "spec", "groups")
	if err != nil {
		t.Fatal(err)
	}
	body, err := d.Body(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, group := range groups {
		rules, _, err := unstructured.NestedSlice(group.(map[string]any), "rules")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			r := r.(map[string]any)
			for _, match := range series.FindAllStringSubmatch(r["expr"].(string), -1) {
				names++
				if !bytes.Contains(body, []byte("\n"+match[1]+"{")) && !bytes.Contains(body, []byte("\n"+match[1]+" ")) {
					t.Errorf("alert %s uses %s, which the daemon does not have", r["alert"], match[1])
				}
			}
		}
	}
	if names == 0 {
		t.Error("the alert rules name no metric")
	}
}

// manifests are the objects of one file below examples.
func manifests(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, file))
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		t.Fatalf("%s has no objects", file)
	}
	return objects
}

// apply applies an object, strictly: a field that the API does not know is an error.
func apply(t *testing.T, cp *controlplane.ControlPlane, object *unstructured.Unstructured, dryRun ...string) {
	t.Helper()
	config := rest.CopyConfig(cp.AdminConfig())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config)))
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		t.Fatal(err)
	}
	var target dynamic.ResourceInterface = dynamic.NewForConfigOrDie(config).Resource(mapping.Resource)
	if namespace := object.GetNamespace(); namespace != "" {
		target = dynamic.NewForConfigOrDie(config).Resource(mapping.Resource).Namespace(namespace)
	}
	if _, err := target.Apply(t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "examples", DryRun: dryRun}); err != nil {
		t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
}

// exampleConfig writes the file out of the examples' ConfigMap.
func exampleConfig(t *testing.T) string {
	t.Helper()
	text, _, err := unstructured.NestedString(manifests(t, "deployment/configmap.yaml")[0].Object, "data", "controller-manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "controller-manager.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// token is one that a service account's pods would have.
func token(t *testing.T, cp *controlplane.ControlPlane, namespace, name string) string {
	t.Helper()
	seconds := int64(3600)
	request, err := kubernetes.NewForConfigOrDie(cp.AdminConfig()).CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// tokenKubeconfig is a kubeconfig file of a service account in kube-system.
func tokenKubeconfig(t *testing.T, cp *controlplane.ControlPlane, name string) string {
	t.Helper()
	admin := cp.AdminConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: token(t, cp, metav1.NamespaceSystem, name)}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// get asks with a bearer token, or with none.
func get(ctx context.Context, url, bearer string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // self-signed
	}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
