package apiproxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Request is one request that the proxy has answered, or whose answer has begun.
type Request struct {
	At time.Time
	// Verb as in RBAC: get, list, watch, create, update, patch, delete,
	// deletecollection; for other than resources the lower-case method.
	Verb string
	// Resource is empty for other than resources.
	Resource    schema.GroupResource
	Subresource string
	Namespace   string
	Name        string
	Path        string
	UserAgent   string
	// User by client certificate; empty when the client sent a token.
	User string
	// Code of the answer, 0 before there is one.
	Code int
}

// Write tells whether the request may change something.
func (r Request) Write() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	default:
		return false
	}
}

func requestOf(info *request.RequestInfo, r *http.Request) Request {
	recorded := Request{
		At:        time.Now(),
		Verb:      info.Verb,
		Path:      r.URL.Path,
		UserAgent: r.UserAgent(),
	}
	recorded.User, _, _ = certificateUser(r)
	if info.IsResourceRequest {
		recorded.Resource = schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		recorded.Subresource, recorded.Namespace, recorded.Name = info.Subresource, info.Namespace, info.Name
	}
	return recorded
}

func (p *Proxy) record(r Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
}

// answerTime is how long Requests waits for an answer at most.
const answerTime = 10 * time.Second

// Requests returns what was answered so far and what match accepts, in the
// order of the answers. A nil match accepts all. The cluster shows what a
// request did before its answer is there, so writes that the API server has
// already got are waited for.
func (p *Proxy) Requests(match func(Request) bool) []Request {
	p.awaitAnswers()
	p.mu.Lock()
	defer p.mu.Unlock()
	if match == nil {
		return slices.Clone(p.requests)
	}
	var accepted []Request
	for _, r := range p.requests {
		if match(r) {
			accepted = append(accepted, r)
		}
	}
	return accepted
}

// awaitAnswers waits for the answers to the writes that are at the API server now.
func (p *Proxy) awaitAnswers() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	late := time.After(answerTime)
	for _, answered := range open {
		select {
		case <-answered:
		case <-late:
			return
		}
	}
}

// opened notes that a write goes to the API server, until closed is called.
func (p *Proxy) opened(r Request) (closed func()) {
	if !r.Write() {
		return func() {}
	}
	answered := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[answered] = r
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, answered)
		close(answered)
	})
}

// Unanswered are the writes that are at the API server now, in no order.
func (p *Proxy) Unanswered() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.open))
}

// Forget empties the record.
func (p *Proxy) Forget() {
	p.awaitAnswers()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = nil
}

// Answer answers the requests that match accepts in the API server's place,
// with a status and, when it is not 0, a Retry-After in whole seconds, until stop is called.
func (p *Proxy) Answer(match func(Request) bool, status int, retryAfter time.Duration) (stop func()) {
	return add(p, p.answers, answer{match: match, status: status, retryAfter: retryAfter})
}

// Before calls hook before each request goes to the API server, until stop is
// called. The request waits for hook to return.
func (p *Proxy) Before(hook func(Request)) (stop func()) { return add(p, p.before, hook) }

// After calls hook when the API server has answered and the client does not
// know it yet, until stop is called. The answer waits for hook to return.
func (p *Proxy) After(hook func(Request)) (stop func()) { return add(p, p.after, hook) }

func add[V any](p *Proxy, to map[int]V, value V) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	id := p.next
	to[id] = value
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(to, id)
	}
}

func (p *Proxy) hooks(from map[int]func(Request)) []func(Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hooks := make([]func(Request), 0, len(from))
	for _, hook := range from {
		hooks = append(hooks, hook)
	}
	return hooks
}

func (p *Proxy) answerFor(r Request) (answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.answers {
		if a.match(r) {
			return a, true
		}
	}
	return answer{}, false
}

// narrow turns a request for all namespaces into one for the namespace of the
// scope, and one for all nodes, or all of another resource, into one for those of the scope.
func (p *Proxy) narrow(info *request.RequestInfo, r *http.Request) {
	if !info.IsResourceRequest || (info.Verb != "list" && info.Verb != "watch") {
		return
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if resource.Group == "" && resource.Resource == "namespaces" {
		query := r.URL.Query()
		switch {
		case p.scope.Namespace != "":
			query.Set("fieldSelector", "metadata.name="+p.scope.Namespace)
		case p.scope.NamespaceSelector != "":
			query.Set("labelSelector", p.scope.NamespaceSelector)
		default:
			return
		}
		r.URL.RawQuery = query.Encode()
		return
	}
	if resource.Group == "" && resource.Resource == "nodes" && p.scope.NodeSelector != "" {
		selectLabels(r, p.scope.NodeSelector)
		return
	}
	if resource == p.scope.Selected && p.scope.Selector != "" {
		selectLabels(r, p.scope.Selector)
	}
	if p.scope.Namespace == "" || info.Namespace != "" || !p.namespaced[resource] {
		return
	}
	head, found := strings.CutSuffix(r.URL.Path, "/"+info.Resource)
	if found {
		r.URL.Path = head + "/namespaces/" + p.scope.Namespace + "/" + info.Resource
		r.URL.RawPath = ""
	}
}

func selectLabels(r *http.Request, selector string) {
	query := r.URL.Query()
	query.Set("labelSelector", selector)
	r.URL.RawQuery = query.Encode()
}
