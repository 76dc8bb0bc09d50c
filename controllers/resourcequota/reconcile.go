package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// catchUpTimeout bounds how long a worker waits for caches to hold what the API
// server does. A watch that is made anew for it brings a bookmark within two seconds.
const catchUpTimeout = 3 * time.Second

// reconcile counts what a quota limits, and writes its status if it is another one.
func (c *quotaController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	a := c.books.get(key)
	if a == nil {
		return work.Result{}, nil
	}
	a.counting.Lock()
	defer a.counting.Unlock()
	limits := a.seen().Spec.Hard
	sources := c.sources(limits)
	if c.await(key, sources) {
		return work.Result{}, nil // resume adds it again
	}
	c.confirmLimits(ctx, a, sources)

	// 1. What must stay used is asked for before the caches are: an object that
	// comes between is counted twice for a moment, never not at all.
	q, holds := a.statement(func(name corev1.ResourceName, made *charge) bool { return c.reached(sources.byName[name], made) })
	if !quota.Equals(q.Spec.Hard, limits) {
		return work.Result{}, nil // they have just changed, whose event adds it again
	}
	usage, countErr := quota.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, sources.registry, q.Spec.ScopeSelector)
	if sources.extended && c.classesUnknown() {
		maps.DeleteFunc(usage, func(name corev1.ResourceName, _ resource.Quantity) bool { return ofExtended(name) })
		countErr = errors.Join(countErr, errClassesUnknown)
	}

	// 2. Names that nobody can count keep their value.
	used, kept := quota.Mask(q.Status.Used, quota.ResourceNames(q.Spec.Hard)), map[corev1.ResourceName]hold{}
	for name, counted := range usage {
		before, known := used[name]
		if held := holds[name]; known && counted.Cmp(before) < 0 && held.amount.Sign() > 0 {
			counted.Add(held.amount)
			if counted.Cmp(before) > 0 {
				counted = before
			}
			kept[name] = held
		}
		used[name] = counted
	}

	// 3. Only a status that changes is written.
	err := c.write(ctx, a, q, used)
	if apierrors.IsConflict(err) {
		// Admission was faster. Its event brings the quota back, however late it is.
		if a.conflicted(q) {
			return work.Result{RequeueAfter: gather}, nil
		}
		return work.Result{RequeueAfter: landing}, nil
	}
	if err == nil {
		err = countErr
	}
	a.counted(countErr != nil)
	return work.Result{RequeueAfter: c.next(ctx, a, kept, sources)}, err
}

// write the status of a quota.
func (c *quotaController) write(ctx context.Context, a *account, q *corev1.ResourceQuota, used corev1.ResourceList) error {
	limited := !quota.Equals(q.Spec.Hard, q.Status.Hard)
	if !limited && quota.Equals(used, q.Status.Used) {
		return nil
	}
	changed := q.DeepCopy()
	changed.Status = corev1.ResourceQuotaStatus{Hard: changed.Spec.Hard.DeepCopy(), Used: used}
	written, err := c.client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	switch {
	case notfound.ByAPIServer(err):
		return nil
	case err != nil:
		return fmt.Errorf("write the status of resource quota %s: %w", a.key, err)
	}
	a.wrote(written.ResourceVersion)
	if limited {
		a.setLimited(c.clock.Now())
	}
	return nil
}

// next is when the quota has to be counted again if nothing happens; 0 for never.
func (c *quotaController) next(ctx context.Context, a *account, kept map[corev1.ResourceName]hold, sources sources) time.Duration {
	now := c.clock.Now()
	var due []time.Time
	for name, held := range kept {
		switch {
		case !held.until.IsZero():
			due = append(due, held.until)
		case c.catchUp(ctx, sources.byName[name], held.since):
			due = append(due, now)
		default:
			due = append(due, now.Add(landing))
		}
	}
	if limited := a.limitedAt(); !limited.IsZero() {
		due = append(due, limited.Add(landing))
	}
	if slices.Contains(sources.resources, pods.GroupResource()) {
		if at := c.nextRelease(a.key.Namespace, now); !at.IsZero() {
			due = append(due, at)
		}
	}
	if len(due) == 0 {
		return 0
	}
	return max(slices.MinFunc(due, time.Time.Compare).Sub(now), 0) + gather
}

// confirmLimits makes sure that the count to come finds what was created just
// before the limits came into force, which admission has not charged.
func (c *quotaController) confirmLimits(ctx context.Context, a *account, sources sources) {
	limited := a.limitedAt()
	if limited.IsZero() || c.clock.Since(limited) < landing {
		return
	}
	at := &charge{at: limited, version: a.seen().ResourceVersion}
	var behind []apischema.GroupResource
	for _, resource := range sources.resources {
		// What cannot be listed is counted as soon as it can be.
		if c.usable(resource) && !c.reached([]apischema.GroupResource{resource}, at) {
			behind = append(behind, resource)
		}
	}
	if c.catchUp(ctx, behind, limited) {
		a.setLimited(time.Time{})
	} else {
		a.setLimited(c.clock.Now())
	}
}

// sources of what a quota limits.
type sources struct {
	// registry of those evaluators only that count something of it.
	registry quota.Registry
	// resources that they count, and those of each name.
	resources []apischema.GroupResource
	byName    map[corev1.ResourceName][]apischema.GroupResource
	// extended tells whether it limits requests of extended resources, of which
	// the DeviceClasses say which claims count.
	extended bool
}

func (c *quotaController) sources(hard corev1.ResourceList) sources {
	found := sources{registry: generic.NewRegistry(nil), byName: map[corev1.ResourceName][]apischema.GroupResource{}}
	names := quota.ResourceNames(hard)
	found.extended = slices.ContainsFunc(names, ofExtended)
	for _, e := range c.registry.List() {
		matched := e.MatchingResources(names)
		if len(matched) == 0 {
			continue
		}
		found.registry.Add(e)
		found.resources = append(found.resources, e.GroupResource())
		for _, name := range matched {
			found.byName[name] = append(found.byName[name], e.GroupResource())
		}
	}
	return found
}

// reached tells whether the caches of resources hold all that was created before a charge.
func (c *quotaController) reached(resources []apischema.GroupResource, made *charge) bool {
	for _, resource := range resources {
		if !c.caughtUp.since(resource, made.at) && !c.informers.Reached(resource, made.version) {
			return false
		}
	}
	return true
}

// catchUp has the caches of resources hold what the API server held at since.
func (c *quotaController) catchUp(ctx context.Context, resources []apischema.GroupResource, since time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for _, resource := range resources {
		monitor, ok := c.monitors.Get(resource)
		if !ok {
			continue
		}
		if !c.usable(resource) {
			return false
		}
		if err := monitor.Informer.CatchUp(ctx, since); err != nil {
			c.logger.Debug("Cache cannot be brought up to date", "resource", resource.String(), "err", err)
			return false
		}
		c.caughtUp.set(resource, since)
	}
	return true
}

// usable caches show all of their resource, and can be brought up to date.
func (c *quotaController) usable(resource apischema.GroupResource) bool {
	monitor, ok := c.monitors.Get(resource)
	return ok && monitor.Informer.HasSynced() && monitor.Informer.Err() == nil
}

// await a monitor that quotas are counted from, and that may sync yet. It
// returns true when the quota has to wait.
func (c *quotaController) await(key work.ObjectName, sources sources) bool {
	c.waiting.mu.Lock()
	defer c.waiting.mu.Unlock()
	resources := sources.resources
	if sources.extended {
		resources = append(slices.Clone(resources), deviceClassResource.GroupResource())
	}
	for _, resource := range resources {
		state, ok := c.monitors.State(resource)
		if ok && !state.Synced && !state.Failing && state.Age < monitors.SyncTimeout {
			c.waiting.keys[key] = struct{}{}
			return true
		}
	}
	return false
}

// resume what waits, as some monitor may have synced.
func (c *quotaController) resume() {
	c.waiting.mu.Lock()
	keys := c.waiting.keys
	c.waiting.keys = map[work.ObjectName]struct{}{}
	c.waiting.mu.Unlock()
	for key := range keys {
		if a := c.books.get(key); a != nil {
			c.classify(a.seen(), true)
		}
	}
}
