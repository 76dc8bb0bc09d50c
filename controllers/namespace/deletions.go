package namespace

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// deletions remembers since when namespaces are known to be being deleted. The
// time of this process counts: deletionTimestamp has the clock of an API server,
// and a grace period that clocks can shorten would be none.
type deletions struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	byName map[string]*deletion
}

type deletion struct {
	uid   types.UID
	since time.Time
	// swept early already.
	swept bool
	// held are resources that a sweep at a time could not empty.
	held   []resource
	heldAt time.Time
}

func newDeletions(c clock.PassiveClock) deletions {
	return deletions{clock: c, byName: map[string]*deletion{}}
}

// observe remembers the deletion of n, and tells whether it was not known.
func (d *deletions) observe(n *corev1.Namespace) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.byName[n.Name]; ok && known.uid == n.UID {
		return false
	}
	d.byName[n.Name] = &deletion{uid: n.UID, since: d.clock.Now()}
	return true
}

// of is what is known of the deletion of n. That of a namespace which the
// handler has just seen go begins now, and is not kept.
func (d *deletions) of(n *corev1.Namespace) *deletion {
	if known, ok := d.byName[n.Name]; ok && known.uid == n.UID {
		return known
	}
	return &deletion{uid: n.UID, since: d.clock.Now()}
}

// since tells since when the deletion of n is known.
func (d *deletions) since(n *corev1.Namespace) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(n).since
}

// restart the grace period of n.
func (d *deletions) restart(n *corev1.Namespace) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(n).since = d.clock.Now()
}

// startSweep tells whether n is to be swept early, which is true once only.
func (d *deletions) startSweep(n *corev1.Namespace) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.of(n)
	first := !known.swept
	known.swept = true
	return first
}

// hold remembers what the last sweep of n could not empty.
func (d *deletions) hold(n *corev1.Namespace, held []resource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.of(n)
	known.held, known.heldAt = held, d.clock.Now()
}

// held is what the last sweep of n could not empty, if it was not long ago.
func (d *deletions) held(n *corev1.Namespace) []resource {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.of(n)
	if d.clock.Since(known.heldAt) >= sweepInterval {
		return nil
	}
	return known.held
}

func (d *deletions) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byName, name)
}

// handler adds namespaces when their deletion is seen, and when somebody else
// has changed what holds them. Conditions, which are written here, add nothing.
func (c *namespaceController) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if n, ok := obj.(*corev1.Namespace); ok && unfinished(n) {
				c.deletions.observe(n)
				c.queue.AddEvent(n.Name, isInInitialList)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*corev1.Namespace)
			n, isNamespace := newObj.(*corev1.Namespace)
			if !ok || !isNamespace || !unfinished(n) {
				return
			}
			if c.deletions.observe(n) || !slices.Equal(before.Spec.Finalizers, n.Spec.Finalizers) {
				c.queue.Add(n.Name)
			}
		},
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				c.deletions.forget(key.Name)
			}
		},
	}
}
