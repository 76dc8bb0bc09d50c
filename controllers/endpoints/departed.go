package endpoints

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// departed are Services that were seen to go, until their Endpoints are looked
// for. Its methods may be called concurrently.
type departed struct {
	mu   sync.Mutex
	keys map[work.ObjectName]struct{}
}

func (d *departed) note(key work.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys == nil {
		d.keys = map[work.ObjectName]struct{}{}
	}
	d.keys[key] = struct{}{}
}

// take tells whether a Service was noted, and forgets it.
func (d *departed) take(key work.ObjectName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.keys[key]
	delete(d.keys, key)
	return ok
}

// clear away the Endpoints of a Service that is not there, current if the cache
// shows them. When it was seen to go, and the cache shows none, they may be too
// new for it: nothing would bring them back.
func (c *endpointsController) clear(ctx context.Context, key work.ObjectName, current *v1.Endpoints) error {
	seen := c.departed.take(key)
	err := func() error {
		if current == nil && seen {
			live, err := c.client.CoreV1().Endpoints(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if notfound.ByAPIServer(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("get the Endpoints: %w", err)
			}
			current = live
		}
		return c.remove(ctx, key, current)
	}()
	if err != nil && seen {
		c.departed.note(key)
	}
	return err
}
