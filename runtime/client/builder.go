// Package client makes the clients of the daemon and of its controllers. Their
// credentials and limits change while they are in use, they refuse writes while
// this process may not lead, and they record what they write.
//
// A request passes fence, marks and, for a controller, its service account, and
// reaches the connections that belong to the newest credentials.
package client

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"

	config "github.com/wheelhouse-project/wheelhouse/schema"
)

// tokenRequestTimeout bounds each request for a service account's credentials.
const tokenRequestTimeout = 10 * time.Second

// unfencedPing notices a dead connection soon enough to renew the lease over
// another one before renewDeadline, at its default of 10 s.
const unfencedPing = 2 * time.Second

// Options of a Builder. Fence and Logger are required.
type Options struct {
	// Kubeconfig is the path of the kubeconfig file. Default: empty, which
	// means the pod's service account.
	Kubeconfig string
	// UseServiceAccountCredentials gives each controller the identity of its
	// own service account in kube-system.
	UseServiceAccountCredentials bool
	// ContentType of requests for built-in types.
	// Default: application/vnd.kubernetes.protobuf.
	ContentType string
	// QPS and Burst of each controller's client. Default: 0, no limit; the API
	// server's 429 with Retry-After is always heeded, up to 10 times a request.
	QPS    float64
	Burst  int
	Fence  *Fence
	Logger *slog.Logger
}

// Builder makes clients. All of them share its connections, which follow the
// credentials' files. Its methods may be called from several goroutines at once.
type Builder struct {
	o Options
	// Three sets of connections: the daemon's, the daemon's that must not wait
	// behind others' bulk, and one for requests that bring their own identity.
	root, unfenced, anonymous *live
	tokens                    clientbuilder.ControllerClientBuilder
	requests                  sync.WaitGroup
	rootMarks                 *Marks

	mu    sync.Mutex
	files []string
	// newCA is closed and replaced when ServerCA changes.
	newCA       chan struct{}
	limits      limits
	controllers map[string]*controllerClients
	accounts    map[string]*account
}

// Clients of one controller.
type Clients struct {
	Kubernetes kubernetes.Interface
	Metadata   metadata.Interface
	Dynamic    dynamic.Interface
}

type limits struct {
	qps   float64
	burst int
}

type controllerClients struct {
	Clients
	marks   *Marks
	limiter *limiter
	// own limits, nil for those of all.
	own *limits
}

// New loads the credentials. It sends nothing.
func New(o Options) (*Builder, error) {
	if o.Fence == nil || o.Logger == nil {
		return nil, errors.New("make clients: Fence and Logger are required")
	}
	if o.ContentType == "" {
		o.ContentType = runtime.ContentTypeProtobuf
	}
	c, files, err := loadCredentials(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load credentials: %w", err)
	}
	b := &Builder{
		o:           o,
		rootMarks:   NewMarks(),
		files:       files,
		newCA:       make(chan struct{}),
		limits:      limits{o.QPS, o.Burst},
		controllers: map[string]*controllerClients{},
		accounts:    map[string]*account{},
	}
	if b.root, err = newLive(c, 0); err != nil {
		return nil, err
	}
	if b.unfenced, err = newLive(c, unfencedPing); err != nil {
		return nil, err
	}
	if b.anonymous, err = newLive(c.anonymous(), 0); err != nil {
		return nil, err
	}
	config := b.Root("service-account-tokens")
	config.Timeout = tokenRequestTimeout
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client for service account tokens: %w", err)
	}
	// The configuration that the library copies is not used, only its tokens are.
	b.tokens = clientbuilder.NewDynamicClientBuilder(&rest.Config{}, core, metav1.NamespaceSystem)
	return b, nil
}

// Root returns a configuration with the daemon's own identity whose writes are
// fenced, and that is every POST, access reviews too. name ends its user agent.
func (b *Builder) Root(name string) *rest.Config {
	return b.config(name, b.fenced(b.rootMarks, b.root))
}

// Unfenced returns a configuration with the daemon's own identity whose writes
// pass always, over connections of its own: for the leader lease, events, and
// access reviews. name ends its user agent.
func (b *Builder) Unfenced(name string) *rest.Config {
	return b.config(name, b.unfenced)
}

func (b *Builder) fenced(marks *Marks, next http.RoundTripper) http.RoundTripper {
	prefix := strings.TrimSuffix(b.root.origin.Path, "/")
	return &fenceTransport{fence: b.o.Fence, next: &marksTransport{marks: marks, prefix: prefix, next: next}}
}

func (b *Builder) config(name string, rt http.RoundTripper) *rest.Config {
	config := &rest.Config{
		Host:      b.root.origin.String(),
		Transport: rt,
		QPS:       -1, // no limit
		ContentConfig: rest.ContentConfig{
			ContentType:        b.o.ContentType,
			AcceptContentTypes: b.o.ContentType,
		},
		WarningHandlerWithContext: rest.NoWarnings{},
	}
	if b.o.ContentType != runtime.ContentTypeJSON {
		config.AcceptContentTypes += "," + runtime.ContentTypeJSON
	}
	return rest.AddUserAgent(config, name)
}

// For returns the clients of a controller and the marks of all their writes.
// The same controller gets the same ones for the life of the Builder. Nothing
// is sent before their first use. An empty serviceAccount means the daemon's
// own identity.
func (b *Builder) For(controller, serviceAccount string) (Clients, *Marks, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.controllers[controller]; c != nil {
		return c.Clients, c.marks, nil
	}
	c := &controllerClients{marks: NewMarks(), limiter: newLimiter(b.limits.qps, b.limits.burst)}
	config := b.controllerConfig(controller, serviceAccount, c.marks)
	config.RateLimiter = c.limiter
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return Clients{}, nil, fmt.Errorf("make the clients of %s: %w", controller, err)
	}
	if c.Kubernetes, err = kubernetes.NewForConfigAndClient(config, httpClient); err != nil {
		return Clients{}, nil, fmt.Errorf("make the client of %s: %w", controller, err)
	}
	if c.Metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), httpClient); err != nil {
		return Clients{}, nil, fmt.Errorf("make the metadata client of %s: %w", controller, err)
	}
	if c.Dynamic, err = dynamic.NewForConfigAndClient(dynamic.ConfigFor(config), httpClient); err != nil {
		return Clients{}, nil, fmt.Errorf("make the dynamic client of %s: %w", controller, err)
	}
	b.controllers[controller] = c
	return c.Clients, c.marks, nil
}

// controllerConfig is called with mu held.
func (b *Builder) controllerConfig(controller, serviceAccount string, marks *Marks) *rest.Config {
	if !b.o.UseServiceAccountCredentials || serviceAccount == "" {
		if serviceAccount == "" {
			serviceAccount = controller
		}
		return b.config(serviceAccount, b.fenced(marks, b.root))
	}
	a := b.accounts[serviceAccount]
	if a == nil {
		a = &account{name: serviceAccount, fence: b.o.Fence, builder: b.tokens, next: b.anonymous, requests: &b.requests}
		b.accounts[serviceAccount] = a
	}
	return b.config(serviceaccount.MakeUsername(metav1.NamespaceSystem, serviceAccount), b.fenced(marks, a))
}

// Written merges the marks of all controllers and of the daemon itself.
func (b *Builder) Written() map[schema.GroupResource]string {
	all := NewMarks()
	all.Merge(b.rootMarks.Snapshot())
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.controllers {
		all.Merge(c.marks.Snapshot())
	}
	return all.Snapshot()
}

// SetLimits changes QPS and Burst of every controller that has no limits of its
// own, at once, also for requests that wait already.
func (b *Builder) SetLimits(qps float64, burst int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = limits{qps, burst}
	for _, c := range b.controllers {
		b.limit(c)
	}
}

// SetControllerLimits gives a controller that For was called for limits of its
// own; nil takes them away.
func (b *Builder) SetControllerLimits(controller string, own *config.ClientLimits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.controllers[controller]
	if c == nil {
		return
	}
	c.own = nil
	if own != nil {
		c.own = &limits{own.QPS, own.Burst}
	}
	b.limit(c)
}

func (b *Builder) limit(c *controllerClients) {
	l := b.limits
	if c.own != nil {
		l = *c.own
	}
	c.limiter.set(l.qps, l.burst)
}

// Reload reads the credentials again and tells whether anything changed. After
// an error the ones in use stay in use. Requests under way are finished with
// the old ones; watches end, as they do now and then, when they cannot go on
// over the old connections.
func (b *Builder) Reload() (changed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, files, err := loadCredentials(b.o.Kubeconfig)
	if err != nil {
		// Watch what is wanted now beside what is in use.
		b.files = union(b.files, files)
		return false, fmt.Errorf("reload credentials, those in use stay in use: %w", err)
	}
	use, err := b.prepare(c)
	if err != nil {
		return false, fmt.Errorf("reload credentials, those in use stay in use: %w", err)
	}
	b.files = files
	before := b.serverCA()
	for _, f := range use {
		f()
		changed = true
	}
	if !bytes.Equal(before, b.serverCA()) {
		close(b.newCA)
		b.newCA = make(chan struct{})
	}
	return changed, nil
}

// ServerCA returns the PEM bundle by which the API server is verified, empty
// when that is done by the system's roots, and a channel that is closed when
// Reload has replaced it.
func (b *Builder) ServerCA() (bundle []byte, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.serverCA(), b.newCA
}

func (b *Builder) serverCA() []byte { return b.root.newest.Load().credentials.config.CAData }

func (b *Builder) prepare(c *credentials) ([]func(), error) {
	var use []func()
	for _, l := range []struct {
		*live
		*credentials
	}{{b.root, c}, {b.unfenced, c}, {b.anonymous, c.anonymous()}} {
		f, err := l.live.prepare(l.credentials)
		if err != nil {
			return nil, err
		}
		if f != nil {
			use = append(use, f)
		}
	}
	return use, nil
}

// Files are the files that Reload reads: the kubeconfig and what it refers to,
// or those of the pod's service account; absolute, sorted. They may change with
// each Reload.
func (b *Builder) Files() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return union(b.files, nil)
}

func union(a, b []string) []string {
	files := slices.Concat(a, b)
	slices.Sort(files)
	return slices.Compact(files)
}

// Close ends watches, closes idle connections and waits for requests whose
// callers have left. Call it after everything that uses the clients has ended.
func (b *Builder) Close() {
	for _, l := range []*live{b.root, b.unfenced, b.anonymous} {
		l.newest.Load().retire()
	}
	b.requests.Wait()
}
