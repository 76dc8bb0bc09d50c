package discovery

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
)

// Run polls until ctx ends. It may be called once.
func (d *Discovery) Run(ctx context.Context) {
	retry := d.retry()
	for {
		next := d.o.Interval
		if err := d.poll(ctx); err != nil {
			next = min(next, retry.Step())
		} else {
			retry = d.retry()
			if len(d.missing) > 0 {
				next = min(next, confirmDelay)
			}
		}
		if !d.pause(ctx, next) {
			return
		}
	}
}

// retry paces polls that fail altogether.
func (d *Discovery) retry() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: d.o.Interval}
}

// pause until the next poll; false when ctx has ended.
func (d *Discovery) pause(ctx context.Context, until time.Duration) bool {
	timer := d.o.Clock.NewTimer(until)
	defer func() { timer.Stop() }()
	due := d.o.Clock.Now().Add(until)
	recheck := d.recheck
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C():
			// The poll that comes now answers all who have asked before it.
			select {
			case <-d.recheck:
			default:
			}
			return true
		case <-recheck:
			recheck = nil
			timer.Stop()
			timer = d.o.Clock.NewTimer(min(recheckDelay, due.Sub(d.o.Clock.Now())))
		}
	}
}

// poll once. The error is that of a poll that found nothing out at all.
func (d *Discovery) poll(ctx context.Context) error {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, discovery.ToDiscoveryInterfaceWithContext(d.o.Client))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		err = fmt.Errorf("discover the served resources: %w", err)
		d.fail(err)
		return err
	}
	found := map[schema.GroupVersionResource]Resource{}
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			d.o.Logger.Warn("API server serves a group and version that cannot be read",
				"groupVersion", list.GroupVersion, "error", parseErr)
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if strings.Contains(r.Name, "/") {
				continue
			}
			found[gv.WithResource(r.Name)] = Resource{Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs}
		}
	}
	d.apply(found, failed, versionsOf(groups))
	d.fail(err)
	return nil
}

// fail keeps the error of the last poll, nil included, and logs it when it is new.
func (d *Discovery) fail(err error) {
	d.mu.Lock()
	before := d.err
	d.err = err
	d.mu.Unlock()
	switch {
	case err == nil && before != nil:
		d.o.Logger.Info("API groups can be discovered again")
	case err != nil && (before == nil || before.Error() != err.Error()):
		d.o.Logger.Warn("API groups cannot be discovered; what was known of them is kept", "error", err)
	}
}

// apply what a poll found. Resources of failed groups, which are those of an
// aggregated API whose server is down, stay as they were last seen. A resource
// must be missing from two polls until it counts as gone: an API server that
// has just started does not know all of its groups yet.
func (d *Discovery) apply(
	found map[schema.GroupVersionResource]Resource, failed map[schema.GroupVersion]error, versions map[schema.GroupVersion]int,
) {
	known, _ := d.Resources()
	missing := map[schema.GroupVersionResource]Resource{}
	for gvr, resource := range known {
		if _, ok := found[gvr]; ok {
			continue
		}
		if _, ok := failed[gvr.GroupVersion()]; ok {
			found[gvr] = resource
			continue
		}
		if _, twice := d.missing[gvr]; !twice {
			missing[gvr] = resource
			found[gvr] = resource
		}
	}
	d.missing = missing
	prefer(found, missing, versions)

	d.mu.Lock()
	defer d.mu.Unlock()
	first := d.resources == nil
	if !first && maps.EqualFunc(d.resources, found, func(a, b Resource) bool { return reflect.DeepEqual(a, b) }) {
		return
	}
	d.resources = found
	close(d.changed)
	d.changed = make(chan struct{})
	if first {
		close(d.ready)
	}
}
