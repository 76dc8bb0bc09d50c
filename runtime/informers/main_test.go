package informers_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, controlplane.Options{})) }

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// longTime bounds what should take a moment, on a machine that is busy.
const longTime = 2 * time.Minute

// traffic counts an informer client's requests per resource, and can hold back
// what watches bring.
type traffic struct {
	mu    sync.Mutex
	lists map[string]int
	watch map[string]int
	open  map[string]int
	// held is open while watches are held back.
	held chan struct{}
	// jammed is closed when the watches that were made with it are stuck for good.
	jammed chan struct{}
}

func newTraffic() *traffic {
	return &traffic{lists: map[string]int{}, watch: map[string]int{}, open: map[string]int{}, jammed: make(chan struct{})}
}

func (c *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		resource := request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:]
		watch := request.URL.Query().Get("watch") == "true" || request.URL.Query().Get("watch") == "1"
		c.mu.Lock()
		if watch {
			c.watch[resource]++
		} else {
			c.lists[resource]++
		}
		c.mu.Unlock()
		response, err := next.RoundTrip(request)
		if err == nil && watch {
			c.mu.Lock()
			c.open[resource]++
			response.Body = &watchBody{
				ReadCloser: response.Body, traffic: c, resource: resource, jammed: c.jammed, closed: make(chan struct{}),
			}
			c.mu.Unlock()
		}
		return response, err
	})
}

// hold watches until the returned function is called.
func (c *traffic) hold() (release func()) {
	held := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = held
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held = nil
		close(held)
	})
}

// jam the watches that are open now, as a connection that has died unnoticed.
func (c *traffic) jam() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.jammed)
	c.jammed = make(chan struct{})
}

func (c *traffic) counts(resource string) (lists, watches, open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists[resource], c.watch[resource], c.open[resource]
}

func (c *traffic) openWatches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.open {
		sum += n
	}
	return sum
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

type watchBody struct {
	io.ReadCloser
	traffic  *traffic
	resource string
	jammed   chan struct{}
	once     sync.Once
	closed   chan struct{}
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for {
		b.traffic.mu.Lock()
		held := b.traffic.held
		b.traffic.mu.Unlock()
		select {
		case <-b.jammed:
			<-b.closed
			return 0, io.ErrClosedPipe
		default:
		}
		if held == nil {
			return n, err
		}
		select {
		case <-held:
		case <-b.closed:
			return 0, io.ErrClosedPipe
		}
	}
}

func (b *watchBody) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.traffic.mu.Lock()
		defer b.traffic.mu.Unlock()
		b.traffic.open[b.resource]--
	})
	return b.ReadCloser.Close()
}

// newPool for config, closed when the test ends.
func newPool(t testing.TB, config *rest.Config, o informers.Options) (*informers.Pool, *traffic) {
	t.Helper()
	counted := newTraffic()
	config = rest.CopyConfig(config)
	config.Wrap(counted.wrap)
	var err error
	if o.Client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if o.Metadata, err = metadata.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	pool := informers.NewPool(o)
	t.Cleanup(pool.Close)
	return pool, counted
}

func adminClient(t testing.TB, cp *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func mustLease(t testing.TB, lease *informers.Lease, gvr schema.GroupVersionResource) *informers.Informer {
	t.Helper()
	informer, err := lease.Informer(gvr)
	if err != nil {
		t.Fatal(err)
	}
	return informer
}

func mustSync(t testing.TB, lease *informers.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longTime)
	defer cancel()
	if err := lease.WaitForSync(ctx, nil); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(longTime)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}
