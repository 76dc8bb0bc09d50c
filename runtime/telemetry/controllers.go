package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// controllerCollectors keeps the controllers' collectors in one registry:
// controllers share families, such as those of replicaset-controller and
// replicationcontroller-controller, which may be served once only.
type controllerCollectors struct {
	registry *prometheus.Registry

	mu    sync.Mutex
	users []collectorUse
}

// collectorUse says which controllers use a registered collector.
type collectorUse struct {
	collector   prometheus.Collector
	controllers []string
}

func newControllerCollectors() *controllerCollectors {
	return &controllerCollectors{registry: prometheus.NewRegistry()}
}

// register returns prometheus.AlreadyRegisteredError when there is an equal
// collector already, of this or another controller, and notes the user of that one.
func (c *controllerCollectors) register(controller string, collector prometheus.Collector) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.registry.Register(collector)
	var already prometheus.AlreadyRegisteredError
	switch {
	case errors.As(err, &already):
		collector = already.ExistingCollector
	case err != nil:
		return fmt.Errorf("register metrics of %s: %w", controller, err)
	}
	i := slices.IndexFunc(c.users, func(u collectorUse) bool { return u.collector == collector })
	if i < 0 {
		i = len(c.users)
		c.users = append(c.users, collectorUse{collector: collector})
	}
	if !slices.Contains(c.users[i].controllers, controller) {
		c.users[i].controllers = append(c.users[i].controllers, controller)
	}
	return err
}

// unregister tells whether collector was used by controller.
func (c *controllerCollectors) unregister(controller string, collector prometheus.Collector) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, u := range c.users {
		if u.collector == collector && slices.Contains(u.controllers, controller) {
			c.leave(i, controller)
			return true
		}
	}
	return false
}

func (c *controllerCollectors) drop(controller string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.users) - 1; i >= 0; i-- {
		c.leave(i, controller)
	}
}

// leave is called with mu held.
func (c *controllerCollectors) leave(i int, controller string) {
	u := &c.users[i]
	u.controllers = slices.DeleteFunc(u.controllers, func(name string) bool { return name == controller })
	if len(u.controllers) == 0 {
		c.registry.Unregister(u.collector)
		c.users = slices.Delete(c.users, i, i+1)
	}
}

// controllerRegisterer implements prometheus.Registerer for one controller.
// Collectors must be comparable, as pointers are.
type controllerRegisterer struct {
	all        *controllerCollectors
	controller string
}

// Register implements prometheus.Registerer.
func (r controllerRegisterer) Register(c prometheus.Collector) error {
	return r.all.register(r.controller, c)
}

// MustRegister implements prometheus.Registerer.
func (r controllerRegisterer) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err) //nolint:forbidigo // what MustRegister promises
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r controllerRegisterer) Unregister(c prometheus.Collector) bool {
	return r.all.unregister(r.controller, c)
}
