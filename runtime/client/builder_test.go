package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	config "github.com/wheelhouse-project/wheelhouse/schema"
)

// builderFor makes a builder for a server that handler answers for.
func builderFor(t *testing.T, o Options, handler http.HandlerFunc) *Builder {
	t.Helper()
	ca := newAuthority(t)
	f := newFiles(t, ca.serve(t, handler).URL)
	f.write("ca.crt", ca.pem)
	f.AuthInfos["u"].Token = "root"
	o.Kubeconfig = f.kubeconfig()
	return newBuilder(t, o)
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no error without a fence and a logger")
	}
}

func TestRequestsOfAController(t *testing.T) {
	var got http.Request
	b := builderFor(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		got = *r
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"5"}}`)
	})
	clients, marks, err := b.For("some-controller", "some-account")
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := clients.Kubernetes.CoreV1().Pods("n").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	agent := got.UserAgent()
	if !strings.HasSuffix(agent, "/some-account") || !strings.Contains(agent, "kubernetes/") {
		t.Errorf("user agent %q, want BINARY/VERSION (OS/ARCH) kubernetes/COMMIT/some-account", agent)
	}
	if got.Header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" ||
		got.Header.Get("Accept") != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("content type %q, accept %q", got.Header.Get("Content-Type"), got.Header.Get("Accept"))
	}
	if got.Header.Get("Accept-Encoding") != "" {
		t.Errorf("asks for compression: %q", got.Header.Get("Accept-Encoding"))
	}
	if got.Header.Get("Authorization") != "Bearer root" {
		t.Errorf("called with %q", got.Header.Get("Authorization"))
	}
	again, sameMarks, err := b.For("some-controller", "some-account")
	if err != nil || again != clients || sameMarks != marks {
		t.Error("the same controller got other clients or marks")
	}
	if marks.Snapshot()[pods] != "5" || b.Written()[pods] != "5" {
		t.Errorf("marks %v, written %v; want pods at 5", marks.Snapshot(), b.Written())
	}
}

func TestConfigurationsHoldNoCredentials(t *testing.T) {
	b := builderFor(t, Options{}, nil)
	for _, config := range []string{fmt.Sprintf("%#v", b.Root("a")), fmt.Sprintf("%+v", *b.Unfenced("b"))} {
		if strings.Contains(config, `"root"`) || strings.Contains(config, "Token:root") {
			t.Errorf("%s", config)
		}
	}
}

func TestJSONWhenWanted(t *testing.T) {
	b := builderFor(t, Options{ContentType: "application/json"}, nil)
	if config := b.Root("a"); config.ContentType != "application/json" || config.AcceptContentTypes != "application/json" {
		t.Errorf("content type %q, accept %q", config.ContentType, config.AcceptContentTypes)
	}
}

func TestFencedAndUnfencedClients(t *testing.T) {
	var requests atomic.Int64
	fence := NewFence(nil)
	b := builderFor(t, Options{Fence: fence}, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`)
	})
	clients, _, err := b.For("c", "")
	if err != nil {
		t.Fatal(err)
	}
	unfenced, err := kubernetes.NewForConfig(b.Unfenced("leader-election"))
	if err != nil {
		t.Fatal(err)
	}
	create := func(c kubernetes.Interface) error {
		_, err := c.CoreV1().Pods("n").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
		return err
	}
	for name, c := range map[string]kubernetes.Interface{"root": rootClient(t, b), "controller": clients.Kubernetes} {
		if err := create(c); !errors.Is(err, ErrFenced) {
			t.Errorf("%s: error %v, want ErrFenced", name, err)
		}
		if _, err := c.CoreV1().Pods("n").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Errorf("%s: a read was refused: %v", name, err)
		}
	}
	if err := create(unfenced); err != nil {
		t.Errorf("the unfenced client's write was refused: %v", err)
	}
	if requests.Load() != 3 {
		t.Errorf("%d requests, want 3", requests.Load())
	}
	if fence.Refused() != 2 {
		t.Errorf("%d refused, want 2", fence.Refused())
	}
}

func TestServersThrottlingIsHeeded(t *testing.T) {
	var requests atomic.Int64
	b := builderFor(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) <= 5 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"5"}}`)
	})
	clients, marks, err := b.For("c", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.Kubernetes.CoreV1().Pods("n").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a write failed that was to be tried again: %v", err)
	}
	if requests.Load() != 6 || marks.Snapshot()[pods] != "5" {
		t.Errorf("%d requests, marks %v", requests.Load(), marks.Snapshot())
	}
}

func TestLimitsChangeWhileRunning(t *testing.T) {
	b := builderFor(t, Options{QPS: 0.001, Burst: 2}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`)
	})
	clients, _, err := b.For("c", "")
	if err != nil {
		t.Fatal(err)
	}
	get := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := clients.Kubernetes.CoreV1().Pods("n").Get(ctx, "a", metav1.GetOptions{})
		return err
	}
	for range 2 {
		if err := get(soon); err != nil {
			t.Fatal(err)
		}
	}
	// All of a controller's clients share one bucket.
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, err := clients.Metadata.Resource(resource).Namespace("n").Get(ctx, "a", metav1.GetOptions{}); err == nil {
		t.Error("the metadata client has a bucket of its own")
	}
	if _, err := clients.Dynamic.Resource(resource).Namespace("n").Get(ctx, "a", metav1.GetOptions{}); err == nil {
		t.Error("the dynamic client has a bucket of its own")
	}
	other, _, err := b.For("d", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Kubernetes.CoreV1().Pods("n").Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Errorf("another controller shares the bucket: %v", err)
	}
	b.SetLimits(0, 0)
	for range 100 {
		if err := get(soon); err != nil {
			t.Fatalf("limited without a limit: %v", err)
		}
	}
	b.SetControllerLimits("c", &config.ClientLimits{QPS: 0.001, Burst: 1})
	b.SetLimits(0, 0)
	if err := errors.Join(get(soon), get(soon)); err == nil {
		t.Error("the controller's own limit does not hold")
	}
}

// accountServer is an API server as far as service accounts are concerned.
type accountServer struct {
	exists                        atomic.Bool
	tokens, creations, unexpected atomic.Int64
	// hang, when set, keeps token requests until it is closed.
	hang chan struct{}
	// valid is the only token that is accepted.
	valid atomic.Value
}

func (s *accountServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const account = "/api/v1/namespaces/kube-system/serviceaccounts"
	w.Header().Set("Content-Type", "application/json")
	root := r.Header.Get("Authorization") == "Bearer root"
	switch {
	case root && r.Method == http.MethodGet && r.URL.Path == account+"/some-account":
		if !s.exists.Load() {
			status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		fmt.Fprint(w, `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"some-account"}}`)
	case root && r.Method == http.MethodPost && r.URL.Path == account:
		s.creations.Add(1)
		s.exists.Store(true)
		fmt.Fprint(w, `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"some-account","resourceVersion":"1"}}`)
	case root && r.Method == http.MethodPost && r.URL.Path == account+"/some-account/token":
		if s.hang != nil {
			select {
			case <-s.hang:
			case <-r.Context().Done():
			}
		}
		token := fmt.Sprintf("token-%d", s.tokens.Add(1))
		s.valid.Store("Bearer " + token)
		fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{"expirationSeconds":3600},`+
			`"status":{"token":%q,"expirationTimestamp":%q}}`, token, time.Now().Add(time.Hour).Format(time.RFC3339))
	case root && strings.HasPrefix(r.URL.Path, "/api/v1/namespaces"):
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system"}}`)
	case s.valid.Load() == r.Header.Get("Authorization"):
		fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"5"}}`)
	default:
		s.unexpected.Add(1)
		status(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	}
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
	})
}

func getPod(ctx context.Context, c Clients) error {
	_, err := c.Kubernetes.CoreV1().Pods("n").Get(ctx, "a", metav1.GetOptions{})
	return err
}

func TestServiceAccountIsMadeByTheFirstRequestAndOnce(t *testing.T) {
	s := &accountServer{}
	b := builderFor(t, Options{UseServiceAccountCredentials: true}, s.ServeHTTP)
	first, _, err := b.For("first-controller", "some-account")
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := b.For("second-controller", "some-account")
	if err != nil {
		t.Fatal(err)
	}
	if s.tokens.Load()+s.creations.Load() != 0 {
		t.Fatal("requests before the first use")
	}
	done := make(chan error)
	for i := range 20 {
		go func() { done <- getPod(t.Context(), []Clients{first, second}[i%2]) }()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if s.creations.Load() != 1 || s.tokens.Load() != 1 || s.unexpected.Load() != 0 {
		t.Errorf("%d accounts made, %d tokens, %d refused; want 1, 1, 0", s.creations.Load(), s.tokens.Load(), s.unexpected.Load())
	}
	// A token that is not accepted any more is given up, and the next request gets a new one.
	s.valid.Store("revoked")
	if err := getPod(t.Context(), first); !apierrors.IsUnauthorized(err) {
		t.Errorf("error %v, want Unauthorized", err)
	}
	if err := getPod(t.Context(), first); err != nil || s.tokens.Load() != 2 {
		t.Errorf("error %v, %d tokens; want a second one", err, s.tokens.Load())
	}
}

func TestStandbyAsksForNoToken(t *testing.T) {
	s := &accountServer{}
	fence := NewFence(nil)
	b := builderFor(t, Options{UseServiceAccountCredentials: true, Fence: fence}, s.ServeHTTP)
	clients, _, err := b.For("c", "some-account")
	if err != nil {
		t.Fatal(err)
	}
	if err := getPod(t.Context(), clients); !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), "some-account") {
		t.Errorf("error %v, want ErrFenced that names the account", err)
	}
	if s.tokens.Load()+s.creations.Load()+s.unexpected.Load() != 0 {
		t.Error("a standby sent requests for credentials")
	}
	fence.OpenAlways()
	if err := getPod(t.Context(), clients); err != nil {
		t.Errorf("once it leads: %v", err)
	}
}

func TestRequestDoesNotWaitForATokenLongerThanItsContext(t *testing.T) {
	s := &accountServer{hang: make(chan struct{})}
	fence := NewFence(nil)
	fence.OpenAlways()
	b := builderFor(t, Options{UseServiceAccountCredentials: true, Fence: fence}, s.ServeHTTP)
	clients, _, err := b.For("c", "some-account")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	// It would wait until the token is there.
	if err := getPod(ctx, clients); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
	close(s.hang)
	if err := getPod(t.Context(), clients); err != nil {
		t.Errorf("later: %v", err)
	}
}
