package apiproxy

import (
	"context"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// watchGates hold back what watches deliver, by resource.
type watchGates struct {
	mu     sync.Mutex
	held   map[schema.GroupResource]chan struct{}
	delays map[schema.GroupResource]time.Duration
}

// HoldWatches lets no watch event of resource through until release is
// called, which delivers what has gathered. Lists, and the initial events of a
// new watch, are held back as well as far as they come through a watch.
func (p *Proxy) HoldWatches(resource schema.GroupResource) (release func()) {
	return p.watches.hold(resource)
}

// DelayWatches delivers every watch event of resource by d later; 0 ends it.
func (p *Proxy) DelayWatches(resource schema.GroupResource, d time.Duration) {
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	if p.watches.delays == nil {
		p.watches.delays = map[schema.GroupResource]time.Duration{}
	}
	p.watches.delays[resource] = d
}

func (g *watchGates) hold(resource schema.GroupResource) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = map[schema.GroupResource]chan struct{}{}
	}
	opened, ok := g.held[resource]
	if !ok {
		opened = make(chan struct{})
		g.held[resource] = opened
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.held[resource] == opened {
			delete(g.held, resource)
			close(opened)
		}
	}
}

func (g *watchGates) openAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for resource, opened := range g.held {
		delete(g.held, resource)
		close(opened)
	}
}

// state returns the channel that closes when the gate opens, nil when it is
// open, and the delay.
func (g *watchGates) state(resource schema.GroupResource) (closed <-chan struct{}, delay time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if opened, ok := g.held[resource]; ok {
		closed = opened
	}
	return closed, g.delays[resource]
}

// gate passes on what upstream delivers when the gate of resource lets it, and
// no earlier than its lag, until the context of the client's request ends.
func (g *watchGates) gate(ctx context.Context, resource schema.GroupResource, late lag, upstream io.ReadCloser) io.ReadCloser {
	body := &gatedBody{
		gates:    g,
		lag:      late,
		resource: resource,
		upstream: upstream,
		chunks:   make(chan chunk, 1024),
		ended:    ctx.Done(),
	}
	go body.pump()
	return body
}

// chunk is what one read of upstream returned. It need not end with a frame:
// the reader puts frames together again.
type chunk struct {
	data []byte
	at   time.Time
	err  error
}

// gatedBody reads upstream at once, so that each chunk has the time of its
// arrival, or of its late one, and hands it out when it may.
type gatedBody struct {
	gates    *watchGates
	lag      lag
	resource schema.GroupResource
	upstream io.ReadCloser
	chunks   chan chunk
	ended    <-chan struct{}

	rest []byte
	err  error
}

func (b *gatedBody) pump() {
	defer close(b.chunks)
	for {
		buffer := make([]byte, 16<<10)
		n, err := b.upstream.Read(buffer)
		select {
		case b.chunks <- chunk{data: buffer[:n], at: time.Now().Add(b.lag.of(lateWatches)), err: err}:
		case <-b.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (b *gatedBody) Read(into []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil {
		select {
		case next, ok := <-b.chunks:
			if !ok {
				return 0, io.EOF
			}
			if !b.pass(next.at) {
				return 0, io.EOF
			}
			b.rest, b.err = next.data, next.err
		case <-b.ended:
			return 0, io.EOF
		}
	}
	if len(b.rest) > 0 {
		n := copy(into, b.rest)
		b.rest = b.rest[n:]
		return n, nil
	}
	return 0, b.err
}

// pass waits until what arrived at a time may pass; false when the request has ended.
func (b *gatedBody) pass(arrived time.Time) bool {
	for {
		closed, delay := b.gates.state(b.resource)
		if closed == nil {
			wait := time.Until(arrived.Add(delay))
			if wait <= 0 {
				return true
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-b.ended:
				timer.Stop()
				return false
			}
			continue
		}
		select {
		case <-closed:
		case <-b.ended:
			return false
		}
	}
}

// Close implements io.Closer. The request, and with it the context, ends when
// its handler returns, soon after.
func (b *gatedBody) Close() error { return b.upstream.Close() }
