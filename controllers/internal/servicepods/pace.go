package servicepods

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// restFactor is how much longer than a reconcile the rest after it is.
	restFactor = 10
	// restMax bounds how long a change of a pod may wait, whatever a reconcile
	// took: nobody notices a pod that is late by this.
	restMax = 100 * time.Millisecond
)

// Pace lets a Service whose pods change all the time rest after each reconcile,
// for ten times as long as it took, but at most 100 ms. What changes meanwhile is
// then written at once, instead of one by one.
//
// Its methods may be called concurrently.
type Pace struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	services map[cache.ObjectName]rest
}

type rest struct {
	// took is how long the last reconcile took.
	took  time.Duration
	until time.Time
}

// NewPace returns a Pace that knows no Service.
func NewPace(c clock.PassiveClock) *Pace {
	return &Pace{clock: c, services: map[cache.ObjectName]rest{}}
}

// Begin is called before a reconcile of service, and returns what is to be called after it.
func (p *Pace) Begin(service cache.ObjectName) (end func()) {
	began := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	// What changes during the reconcile waits as well. How long this one takes is
	// not known: the last one may have waited for the API server.
	took := p.services[service].took
	p.services[service] = rest{took, began.Add(min(took+restFactor*took, restMax))}
	return func() {
		now := p.clock.Now()
		took := now.Sub(began)
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, ok := p.services[service]; !ok {
			return // forgotten meanwhile
		}
		p.services[service] = rest{took, now.Add(min(restFactor*took, restMax))}
	}
}

// Left is how long service still rests.
func (p *Pace) Left(service cache.ObjectName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.services[service]
	if !ok {
		return 0
	}
	return max(r.until.Sub(p.clock.Now()), 0)
}

// Forget a Service that is gone.
func (p *Pace) Forget(service cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.services, service)
}
