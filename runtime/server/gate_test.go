package server

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// daemon is the client of a daemon that has the rights that the API server
// gives to every controller manager.
func daemon(t *testing.T, cp *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config("system:kube-controller-manager"))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// guarded is a server whose gate is as in production.
func guarded(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) *running {
	t.Helper()
	s := run(t, Options{Sources: sample(), Client: client, Config: schema.NewScheme().Default().Server})
	waitForPublished(t, s)
	return s
}

func waitForPublished(t *testing.T, s *running) {
	t.Helper()
	eventually(t, "the published CAs are known", func() error {
		if s.Status().ClientCA.Source == "" || s.trust.requestHeader().ca == nil {
			return errors.New("not yet")
		}
		return nil
	})
}

// as returns a client with a certificate of user in groups.
func as(t *testing.T, cp *controlplane.ControlPlane, user string, groups ...string) *http.Client {
	t.Helper()
	pair := cp.Config(user, groups...).TLSClientConfig
	return withPair(t, pair.CertData, pair.KeyData)
}

func withPair(t *testing.T, cert, key []byte) *http.Client {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return withCertificate(t, pair)
}

// withCertificate returns a client that shows its certificate even to servers
// that do not ask for its issuer.
func withCertificate(t *testing.T, pair tls.Certificate) *http.Client {
	return newClient(t, func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	})
}

// token returns a token of a new service account, and its user name.
func token(t *testing.T, admin kubernetes.Interface, namespace, name string) (token, user string) {
	t.Helper()
	accounts := admin.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	answer, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token, "system:serviceaccount:" + namespace + ":" + name
}

// grant lets user do verbs on paths.
func grant(t *testing.T, admin kubernetes.Interface, user string, verbs []string, paths ...string) {
	t.Helper()
	name := strings.ReplaceAll(user, ":", "-")
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{Verbs: verbs, NonResourceURLs: paths}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The API server learns of it by a watch of its own, and the gate keeps a refusal for a while.
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  user,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: strings.TrimSuffix(paths[0], "*"), Verb: verbs[0]},
	}}
	eventually(t, "the right is in force", func() error {
		answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("it is not")
		}
		return err
	})
}

func admin(t *testing.T, cp *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// guardedPaths is one of everything that is not open, things that are not there included.
var guardedPaths = []string{
	"/", "/configz", "/configz?format=yaml", "/configz/status", "/metrics", "/metrics/slis", "/debug/controllers",
	"/debug/controllers/deployment-controller", "/debug/controllers/deployment-controller/graph", "/debug/reloads", "/debug/leader",
	"/debug/informers", "/debug/flags/v", "/debug/pprof/", "/debug/pprof/heap", "/nothing",
}

var openPaths = []string{"/healthz?exclude=ttl-after-finished-controller", "/livez", "/readyz", "/livez/leaderElection"}

func TestGate_Anonymous(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	s := guarded(t, cp, daemon(t, cp))
	for name, header := range map[string][]string{
		"anonymous": nil, "unknown token": bearer("not-a-token"), "no scheme": {"Authorization", "x"},
		"name of somebody": {"X-Remote-User", "admin"},
	} {
		client := newClient(t)
		for _, path := range guardedPaths {
			code, body := fetch(t, client, s.url(path), header...)
			if code != http.StatusUnauthorized {
				t.Errorf("%s, %s: got %d", name, path, code)
			}
			var status metav1.Status
			if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || status.APIVersion != "v1" ||
				status.Reason != metav1.StatusReasonUnauthorized || status.Code != http.StatusUnauthorized || status.Message != "Unauthorized" {
				t.Errorf("%s, %s: not a Status: %s (%v)", name, path, body, err)
			}
		}
		for _, path := range openPaths {
			if code, body := fetch(t, client, s.url(path), header...); code != http.StatusOK {
				t.Errorf("%s, %s: got %d %s", name, path, code, body)
			}
		}
	}
}

func TestGate_Unauthorized(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	s := guarded(t, cp, daemon(t, cp))
	secret, user := token(t, admin(t, cp), cp.Namespace(t), "nobody")
	for name, caller := range map[string]struct {
		client *http.Client
		header []string
		user   string
	}{
		"client certificate":    {client: as(t, cp, "jane"), user: "jane"},
		"service account token": {client: newClient(t), header: bearer(secret), user: user},
	} {
		for _, path := range guardedPaths {
			code, body := fetch(t, caller.client, s.url(path), caller.header...)
			if code != http.StatusForbidden {
				t.Errorf("%s, %s: got %d %s", name, path, code, body)
			}
			bare, _, _ := strings.Cut(path, "?")
			mustContain(t, body, fmt.Sprintf(`"message":"forbidden: User \"%s\" cannot get path \"%s\"`, caller.user, bare), `"reason":"Forbidden"`)
		}
		for _, path := range openPaths {
			if code, body := fetch(t, caller.client, s.url(path), caller.header...); code != http.StatusOK {
				t.Errorf("%s, %s: got %d %s", name, path, code, body)
			}
		}
	}
}

func TestGate_Authorized(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	s := guarded(t, cp, daemon(t, cp))
	secret, user := token(t, admin(t, cp), cp.Namespace(t), "reader")
	grant(t, admin(t, cp), user, []string{"get"}, "/configz", "/debug/*")

	expect := func(who string, client *http.Client, path string, want int, header ...string) {
		t.Helper()
		if code, body := fetch(t, client, s.url(path), header...); code != want {
			t.Errorf("%s, %s: got %d, want %d: %s", who, path, code, want, body)
		}
	}
	client := newClient(t)
	expect("reader", client, "/configz", 200, bearer(secret)...)
	expect("reader", client, "/debug/controllers/deployment-controller/graph", 200, bearer(secret)...)
	expect("reader", client, "/debug/nothing", 404, bearer(secret)...)
	expect("reader", client, "/metrics", 403, bearer(secret)...)
	expect("reader", client, "/configz/status", 403, bearer(secret)...)

	// The verb is the method: reading a level is not setting it.
	expect("reader", client, "/debug/flags/v", 200, bearer(secret)...)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url("/debug/flags/v"), strings.NewReader("4"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("PUT: got %d", answer.StatusCode)
	}

	// The group that the API server's own roles let monitor.
	monitoring := as(t, cp, "prometheus", "system:monitoring")
	expect("monitoring", monitoring, "/metrics", 200)
	expect("monitoring", monitoring, "/metrics/slis", 200)
	expect("monitoring", monitoring, "/configz", 403)

	masters := as(t, cp, "root", "system:masters")
	for _, path := range guardedPaths {
		want := http.StatusOK
		if path == "/nothing" {
			want = http.StatusNotFound
		}
		expect("system:masters", masters, path, want)
	}
}

// The handler of a controller does not get to see the caller's token.
func TestGate_TokenGoesNoFurther(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	seen := make(chan http.Header, 1)
	sources := sample()
	sources.ControllerHandler = func(string) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	}
	s := run(t, Options{Sources: sources, Client: daemon(t, cp)})
	waitForPublished(t, s)
	secret, user := token(t, admin(t, cp), cp.Namespace(t), "debugger")
	grant(t, admin(t, cp), user, []string{"get"}, "/debug/controllers/*")
	for who, client := range map[string]*http.Client{"token": newClient(t), "certificate": as(t, cp, "root", "system:masters")} {
		if code, body := fetch(t, client, s.url("/debug/controllers/deployment-controller/"), bearer(secret)...); code != http.StatusOK {
			t.Fatalf("%s: got %d %s", who, code, body)
		}
		if got := (<-seen).Get("Authorization"); got != "" {
			t.Errorf("%s: handler got %q", who, got)
		}
	}
}

func TestGate_FrontProxy(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	s := guarded(t, cp, daemon(t, cp))
	pair, err := cp.PKI.FrontProxy()
	if err != nil {
		t.Fatal(err)
	}
	proxy := withCertificate(t, pair)
	if code, body := fetch(t, proxy, s.url("/configz"), "X-Remote-User", "jane"); code != http.StatusForbidden || !strings.Contains(body, `User \"jane\"`) {
		t.Errorf("for jane: got %d %s", code, body)
	}
	if code, body := fetch(t, proxy, s.url("/configz"), "X-Remote-User", "root", "X-Remote-Group", "system:masters"); code != http.StatusOK {
		t.Errorf("for root: got %d %s", code, body)
	}
	// Others are who their certificate says, whatever the headers say.
	other := as(t, cp, "mallory")
	if code, body := fetch(t, other, s.url("/configz"), "X-Remote-User", "root", "X-Remote-Group", "system:masters"); code != http.StatusForbidden ||
		!strings.Contains(body, `User \"mallory\"`) {
		t.Errorf("for mallory: got %d %s", code, body)
	}
}

func TestGate_CertificateOfAnotherCA(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	s := guarded(t, cp, daemon(t, cp))
	cert, key := newAuthority(t, "stranger").issue(t, "root", "system:masters")
	stranger := withPair(t, cert, key)
	if code, _ := fetch(t, stranger, s.url("/configz")); code != http.StatusUnauthorized {
		t.Errorf("got %d", code)
	}
	if code, _ := fetch(t, stranger, s.url("/livez")); code != http.StatusOK {
		t.Errorf("/livez: got %d", code)
	}
}

// A file of CAs replaces the published one, and its content is followed for
// connections that are open as well.
func TestGate_ClientCAFile(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, first.pem())
	s := run(t, Options{Sources: sample(), Client: daemon(t, cp), Config: schema.Server{TLS: schema.ServerTLS{ClientCAFile: file}}})

	client := func(a *authority) *http.Client {
		cert, key := a.issue(t, "root", "system:masters")
		return withPair(t, cert, key)
	}
	ofFirst, ofSecond, ofCluster := client(first), client(second), as(t, cp, "root", "system:masters")
	expect := func(who string, c *http.Client, want int) {
		t.Helper()
		eventually(t, who, func() error {
			if code, body := fetch(t, c, s.url("/configz")); code != want {
				return fmt.Errorf("got %d, want %d: %s", code, want, body)
			}
			return nil
		})
	}
	expect("first", ofFirst, 200)
	expect("second", ofSecond, 401)
	expect("cluster", ofCluster, 401)
	if got := s.Status().ClientCA; got.Source != file || got.LastError != "" {
		t.Errorf("status is %+v", got)
	}

	write(t, file, second.pem())
	expect("second after the change", ofSecond, 200)
	expect("first after the change", ofFirst, 401)

	write(t, file, []byte("not a certificate"))
	eventually(t, "the bad file is reported", func() error {
		if got := s.Status().ClientCA.LastError; !strings.Contains(got, file) {
			return fmt.Errorf("status says %q", got)
		}
		return nil
	})
	expect("second after a bad file", ofSecond, 200)

	cfg := s.config
	cfg.TLS.ClientCAFile = ""
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	expect("cluster without a file", ofCluster, 200)
	expect("second without a file", ofSecond, 401)
}

func TestGate_OpenPathsChangeLive(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	s := guarded(t, cp, daemon(t, cp))
	client := newClient(t)
	for _, step := range []struct {
		paths []string
		want  map[string]int
	}{
		{[]string{"/metrics"}, map[string]int{"/metrics": 200, "/metrics/slis": 401, "/livez": 401, "/livez/ping": 401}},
		{[]string{"/debug/*", "/livez"}, map[string]int{"/debug/leader": 200, "/livez": 200, "/livez/leaderElection": 200, "/metrics": 401}},
		{nil, map[string]int{"/debug/leader": 401, "/livez": 401, "/healthz": 401}},
	} {
		cfg := s.config
		cfg.Authorization.AlwaysAllowPaths = step.paths
		if err := s.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		for path, want := range step.want {
			if code, _ := fetch(t, client, s.url(path)); code != want {
				t.Errorf("open %v, %s: got %d, want %d", step.paths, path, code, want)
			}
		}
	}
	cfg := s.config
	cfg.Authorization.AlwaysAllowPaths = []string{"/a*b"}
	if err := s.Apply(cfg); err == nil || !strings.Contains(err.Error(), "server.authorization.alwaysAllowPaths") {
		t.Errorf("got %v", err)
	}
}

// The API server is asked once per caller and path, not per request.
func TestGate_AnswersAreCached(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	config := cp.Config("system:kube-controller-manager")
	var mu sync.Mutex
	asked := map[string]int{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			asked[r.URL.Path]++
			mu.Unlock()
			return next.RoundTrip(r)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := guarded(t, cp, client)
	allowed, user := token(t, admin(t, cp), cp.Namespace(t), "reader")
	grant(t, admin(t, cp), user, []string{"get"}, "/configz")
	refused, _ := token(t, admin(t, cp), cp.Namespace(t), "nobody")
	caller := newClient(t)
	began := time.Now()
	for range 20 {
		if code, body := fetch(t, caller, s.url("/configz"), bearer(allowed)...); code != http.StatusOK {
			t.Fatalf("got %d %s", code, body)
		}
		if code, body := fetch(t, caller, s.url("/configz"), bearer(refused)...); code != http.StatusForbidden {
			t.Fatalf("got %d %s", code, body)
		}
		fetch(t, caller, s.url("/livez"), bearer(allowed)...)
	}
	// Two callers, asked for again when the answer has become old.
	most := 2 * (1 + int(time.Since(began)/reviewCache))
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{"/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"} {
		if n := asked[path]; n < 2 || n > most {
			t.Errorf("%s was asked %d times for 60 requests", path, n)
		}
	}
	if n := asked["/api/v1/namespaces/kube-system/configmaps"]; n > 2 {
		t.Errorf("the ConfigMap was listed or watched %d times", n)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The server starts without an API server, lets nobody in, and does as soon as
// it is there. When it goes away, nobody new gets in.
func TestGate_APIServerIsDown(t *testing.T) {
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
	reader, user := token(t, admin(t, cp), cp.Namespace(t), "reader")
	grant(t, admin(t, cp), user, []string{"get"}, "/configz")
	late, lateUser := token(t, admin(t, cp), cp.Namespace(t), "late")
	grant(t, admin(t, cp), lateUser, []string{"get"}, "/configz")
	if err := cp.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}

	s := run(t, Options{Sources: sample(), Client: daemon(t, cp), Config: schema.NewScheme().Default().Server})
	masters, client := as(t, cp, "root", "system:masters"), newClient(t)
	health := func() {
		t.Helper()
		for _, path := range openPaths {
			if code, _ := fetch(t, client, s.url(path), bearer(reader)...); code != http.StatusOK {
				t.Errorf("%s: got %d", path, code)
			}
		}
	}
	health()
	// Who vouches for certificates is not known yet.
	if code, _ := fetch(t, masters, s.url("/configz")); code != http.StatusUnauthorized {
		t.Errorf("certificate: got %d", code)
	}
	if code, _ := fetch(t, client, s.url("/configz"), bearer(reader)...); code != http.StatusUnauthorized {
		t.Errorf("token: got %d", code)
	}

	if err := cp.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitForPublished(t, s)
	if code, body := fetch(t, masters, s.url("/configz")); code != http.StatusOK {
		t.Errorf("certificate: got %d %s", code, body)
	}
	if code, body := fetch(t, client, s.url("/configz"), bearer(reader)...); code != http.StatusOK {
		t.Errorf("token: got %d %s", code, body)
	}

	if err := cp.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	health()
	if code, body := fetch(t, client, s.url("/configz"), bearer(late)...); code != http.StatusUnauthorized {
		t.Errorf("token that was not seen before: got %d %s", code, body)
	}
	code, body := fetch(t, as(t, cp, "jane"), s.url("/configz"))
	if code != http.StatusInternalServerError {
		t.Errorf("certificate of somebody without a group: got %d %s", code, body)
	}
	mustContain(t, body, "the API server gave no answer")
	if strings.Contains(body, cp.APIServer.URL) {
		t.Errorf("the answer tells too much: %s", body)
	}
	// Administrators get in to see what is wrong.
	if code, _ := fetch(t, masters, s.url("/configz")); code != http.StatusOK {
		t.Errorf("system:masters: got %d", code)
	}
}

// Without a client the server still protects itself.
func TestGate_NoClient(t *testing.T) {
	ca := newAuthority(t, "ca")
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, ca.pem())
	s := run(t, Options{Sources: sample(), Config: schema.Server{TLS: schema.ServerTLS{ClientCAFile: file}}})
	cert, key := ca.issue(t, "root", "system:masters")
	for _, test := range []struct {
		who    string
		client *http.Client
		want   int
		header []string
	}{
		{"anonymous", newClient(t), 401, nil},
		{"token", newClient(t), 401, bearer("x")},
		{"system:masters", withPair(t, cert, key), 200, nil},
	} {
		if code, body := fetch(t, test.client, s.url("/configz"), test.header...); code != test.want {
			t.Errorf("%s: got %d %s", test.who, code, body)
		}
	}
	cert, key = ca.issue(t, "jane")
	if code, body := fetch(t, withPair(t, cert, key), s.url("/configz")); code != http.StatusForbidden {
		t.Errorf("jane: got %d %s", code, body)
	}
}
