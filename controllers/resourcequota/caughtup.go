package resourcequota

import (
	"sync"
	"time"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// caughtUp remembers since when caches have been brought up to date. It serves
// where versions do not: those of an aggregated API server are its own.
type caughtUp struct {
	mu         sync.Mutex
	byResource map[apischema.GroupResource]time.Time
}

func (c *caughtUp) set(resource apischema.GroupResource, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byResource == nil {
		c.byResource = map[apischema.GroupResource]time.Time{}
	}
	if at.After(c.byResource[resource]) {
		c.byResource[resource] = at
	}
}

// since tells whether the cache of a resource holds what the API server held at a time.
func (c *caughtUp) since(resource apischema.GroupResource, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.byResource[resource]
	return ok && !known.Before(at)
}
