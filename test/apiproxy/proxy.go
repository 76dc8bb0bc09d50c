// Package apiproxy stands between a client and the API server of a test. It
// records requests, holds back or delays watch events, answers in the API
// server's place, cuts connections, and can show its client one namespace only.
//
// The client keeps its identity: a bearer token is passed on, a client
// certificate becomes the X-Remote-… headers of an authenticating proxy.
package apiproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/discovery"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// Scope limits what the proxy's client sees of the cluster, so that the
// controllers of several tests can work on one API server side by side. The
// zero value limits nothing.
type Scope struct {
	// Namespace is the only one whose objects are listed and watched by
	// requests for all namespaces. Of the namespaces themselves only this one is seen.
	Namespace string
	// NamespaceSelector, a label selector, limits the namespaces that are seen,
	// not their content. It is not used together with Namespace.
	NamespaceSelector string
	// NodeSelector, a label selector, limits the nodes that are seen. A node
	// whose labels begin or cease to match comes and goes.
	NodeSelector string
	// Selector, a label selector, limits the objects of the resource Selected in
	// the same way.
	Selector string
	Selected schema.GroupResource
}

// Proxy is a running proxy. Close ends it.
type Proxy struct {
	cp     *controlplane.ControlPlane
	scope  Scope
	lag    lag
	server *http.Server
	url    string
	served chan struct{}

	// withCertificate sends the X-Remote-… headers, withToken the client's token.
	withCertificate, withToken *http.Transport
	infos                      request.RequestInfoFactory
	namespaced                 map[schema.GroupResource]bool

	mu          sync.Mutex
	requests    []Request
	open        map[chan struct{}]Request
	answers     map[int]answer
	before      map[int]func(Request)
	after       map[int]func(Request)
	next        int
	connections map[net.Conn]struct{}
	cut         bool
	watches     watchGates
}

// answer is given in the API server's place.
type answer struct {
	match      func(Request) bool
	status     int
	retryAfter time.Duration
}

// Start starts a proxy in front of cp's API server, on a free port of 127.0.0.1.
func Start(cp *controlplane.ControlPlane, scope Scope) (*Proxy, error) {
	late, err := Lag()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		cp:          cp,
		scope:       scope,
		lag:         lag(late),
		served:      make(chan struct{}),
		open:        map[chan struct{}]Request{},
		answers:     map[int]answer{},
		before:      map[int]func(Request){},
		after:       map[int]func(Request){},
		connections: map[net.Conn]struct{}{},
		infos: request.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
	}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("start the proxy of the API server: %w", err)
	}
	return p, nil
}

func (p *Proxy) start() error {
	if err := p.discover(); err != nil {
		return err
	}
	target, err := url.Parse(p.cp.APIServer.URL)
	if err != nil {
		return err
	}
	frontProxy, err := p.cp.PKI.FrontProxy()
	if err != nil {
		return err
	}
	serving, err := p.cp.PKI.Serving("apiproxy")
	if err != nil {
		return err
	}
	p.withToken = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.cp.PKI.Pool()}, ForceAttemptHTTP2: true}
	p.withCertificate = &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: p.cp.PKI.Pool(), Certificates: []tls.Certificate{frontProxy}},
		ForceAttemptHTTP2: true,
	}
	reverse := &httputil.ReverseProxy{
		Transport:      transports{p},
		FlushInterval:  -1,
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target); setIdentity(r) },
		ModifyResponse: p.modifyResponse,
		// The client sees a broken connection, as it would without the proxy.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // net/http's way to break the connection
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.url = "https://" + listener.Addr().String()
	p.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(reverse, w, r) }),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState:         p.track,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{serving},
			ClientCAs:    p.cp.PKI.Pool(),
			ClientAuth:   tls.VerifyClientCertIfGiven,
		},
	}
	go func() {
		defer close(p.served)
		// The error says only that Close was called.
		_ = p.server.ServeTLS(listener, "", "")
	}()
	return nil
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() error {
	p.watches.openAll()
	err := p.server.Close()
	<-p.served
	p.withCertificate.CloseIdleConnections()
	p.withToken.CloseIdleConnections()
	if err != nil {
		return fmt.Errorf("close the proxy of the API server: %w", err)
	}
	return nil
}

// URL is where the proxy serves.
func (p *Proxy) URL() string { return p.url }

// Kubeconfig writes a kubeconfig file of user in groups, whose server is the
// proxy, into dir and returns its path.
func (p *Proxy) Kubeconfig(dir, user string, groups ...string) (string, error) {
	path := filepath.Join(dir, "proxy.kubeconfig")
	return path, p.cp.WriteKubeconfigFor(p.url, path, user, groups...)
}

// discover learns which resources have a namespace.
func (p *Proxy) discover() error {
	client, err := discovery.NewDiscoveryClientForConfig(p.cp.AdminConfig())
	if err != nil {
		return err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	p.namespaced = map[schema.GroupResource]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			p.namespaced[schema.GroupResource{Group: version.Group, Resource: resource.Name}] = resource.Namespaced
		}
	}
	return nil
}

// serve handles one request of the client.
func (p *Proxy) serve(reverse http.Handler, w http.ResponseWriter, r *http.Request) {
	info, err := p.infos.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	recorded := requestOf(info, r)
	for _, hook := range p.hooks(p.before) {
		hook(recorded)
	}
	if a, ok := p.answerFor(recorded); ok {
		recorded.Code = a.status
		p.record(recorded)
		a.write(w)
		return
	}
	p.narrow(info, r)
	taken := exchange{Request: recorded, answered: p.opened(recorded)}
	defer taken.answered()
	reverse.ServeHTTP(w, r.WithContext(withExchange(r.Context(), taken)))
}

func (a answer) write(w http.ResponseWriter) {
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.retryAfter.Seconds())))
	}
	http.Error(w, "answered by the test's proxy", a.status)
}

// modifyResponse sees the API server's answer before the client does.
func (p *Proxy) modifyResponse(response *http.Response) error {
	taken, ok := exchangeFrom(response.Request.Context())
	if !ok {
		return errors.New("a request that the proxy did not take")
	}
	recorded := taken.Request
	recorded.Code = response.StatusCode
	p.record(recorded)
	taken.answered()
	for _, hook := range p.hooks(p.after) {
		hook(recorded)
	}
	if recorded.Verb == "watch" && response.StatusCode == http.StatusOK {
		response.Body = p.watches.gate(response.Request.Context(), recorded.Resource, p.lag, response.Body)
		return nil
	}
	p.lag.wait(response.Request.Context())
	return nil
}

// setIdentity hands the client's identity on. Whatever X-Remote-… headers the
// client sent itself are dropped.
func setIdentity(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if len(name) > len("X-Remote-") && name[:len("X-Remote-")] == "X-Remote-" {
			r.Out.Header.Del(name)
		}
	}
	if user, groups, ok := certificateUser(r.In); ok {
		r.Out.Header.Set("X-Remote-User", user)
		for _, group := range groups {
			r.Out.Header.Add("X-Remote-Group", group)
		}
	}
}

// certificateUser is who the client is by its certificate. A token goes first,
// as with the API server itself.
func certificateUser(r *http.Request) (user string, groups []string, ok bool) {
	if r.Header.Get("Authorization") != "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return "", nil, false
	}
	subject := r.TLS.PeerCertificates[0].Subject
	return subject.CommonName, subject.Organization, true
}

// transports picks the connection by the kind of identity.
type transports struct{ p *Proxy }

// RoundTrip implements http.RoundTripper.
func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("X-Remote-User") != "" {
		return t.p.withCertificate.RoundTrip(r)
	}
	return t.p.withToken.RoundTrip(r)
}

// Cut breaks all connections, and every new one, until Mend.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for connection := range p.connections {
		connection.Close() // broken on purpose
	}
}

// Mend ends Cut.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *Proxy) track(connection net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.connections[connection] = struct{}{}
		if p.cut {
			connection.Close() // broken on purpose
		}
	case http.StateClosed, http.StateHijacked:
		delete(p.connections, connection)
	default:
	}
}

// exchange is a request on its way to the API server. Its answer is on record
// when answered has been called.
type exchange struct {
	Request
	answered func()
}

type exchangeKey struct{}

func withExchange(ctx context.Context, e exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

func exchangeFrom(ctx context.Context) (exchange, bool) {
	e, ok := ctx.Value(exchangeKey{}).(exchange)
	return e, ok
}
