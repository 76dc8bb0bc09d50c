// Package garbagecollector deletes objects whose owners are gone, and carries
// out deletions in the foreground and deletions that orphan dependents.
//
// Monitors show the metadata of everything that is served to one graph of
// owners and dependents. The graph tells what to look at; what is done then
// rests on the cached object, which a DELETE names by UID and resourceVersion,
// and on owners that are known to be gone: their deletion was watched, or a
// live read did not find them.
package garbagecollector

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Descriptor describes garbage-collector-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.GarbageCollectorControllerSection(),
		ServiceAccount: "generic-garbage-collector",
		// Any resource would do: a controller that requires one is made when
		// discovery knows what is served.
		Requires:   []apischema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("namespaces")},
		LiveFields: []string{"ignoredResources"},
		Monitors:   true,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch", "update", "delete"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "update", "patch"}},
		},
		New: controller.NewFor(New),
	}
}

// waitingFor is how long a live read that has found an owner in foreground
// deletion serves for its other dependents.
const (
	waitingFor     = time.Second
	waitingEntries = 1000
)

// verifyDelay is the time that the event of an owner may take longer than that
// of its dependent, before a live read is made for it.
const verifyDelay = 200 * time.Millisecond

// collector is one life of the controller.
type collector struct {
	logger *slog.Logger
	clock  clock.PassiveClock
	client metadata.Interface
	events record.EventRecorder

	graph    *graph
	gate     gate
	kinds    kinds
	monitors *watched
	deletes  *work.Queue[task]
	orphans  *work.Queue[types.UID]
	// waiting are owners that a live read has just found in foreground deletion.
	waiting    *expiring.LRUExpireCache
	syncErrors prometheus.Counter
}

// New makes the controller.
func New(env controller.Env, section *schema.GarbageCollectorController) (*controller.Controller, error) {
	syncErrors, err := registerSyncErrors(env.Metrics)
	if err != nil {
		return nil, err
	}
	c := &collector{
		logger:     env.Logger,
		clock:      env.Clock,
		client:     env.Metadata,
		events:     env.Events,
		graph:      newGraph(env.Clock.Now, controller.Recall(env.Memory, newOrphanings)),
		waiting:    expiring.NewLRUExpireCacheWithClock(waitingEntries, env.Clock),
		syncErrors: syncErrors,
	}
	c.deletes = work.NewQueue(env.Work, work.Options[task]{
		Name: "garbage_collector_attempt_to_delete", Reconcile: c.attemptToDelete,
	})
	c.orphans = work.NewQueue(env.Work, work.Options[types.UID]{
		Name: "garbage_collector_attempt_to_orphan", Reconcile: c.attemptToOrphan,
	})
	c.monitors = newWatched(c, env, ignored(section))
	// A standby has its graph ready.
	if err := c.monitors.Start(); err != nil {
		return nil, fmt.Errorf("start monitors: %w", err)
	}
	return &controller.Controller{
		ApplyLive: func(s schema.Section) {
			if section, ok := s.(*schema.GarbageCollectorController); ok {
				c.monitors.ignore(ignored(section))
			}
		},
		Handler: debugHandler{c},
		Runners: []func(context.Context) error{c.monitors.Follow},
	}, nil
}

func ignored(section *schema.GarbageCollectorController) map[apischema.GroupResource]bool {
	all := map[apischema.GroupResource]bool{}
	for _, resource := range section.IgnoredResources {
		all[apischema.GroupResource{Group: resource.Group, Resource: resource.Resource}] = true
	}
	return all
}

// apply changes of the graph, or keep them until the gate is open.
func (c *collector) apply(changed changes, initial bool) {
	if len(changed.tasks)+len(changed.orphans)+len(changed.notices) > 0 && c.gate.pass(changed) {
		c.enqueue(changed, initial)
	}
}

func (c *collector) enqueue(changed changes, initial bool) {
	for _, t := range changed.tasks {
		if t.claim != (identity{}) && !initial {
			c.deletes.AddAfter(t, verifyDelay)
			continue
		}
		c.deletes.AddEvent(t, initial)
	}
	for _, uid := range changed.orphans {
		c.orphans.AddEvent(uid, initial)
	}
	for i := range changed.notices {
		c.recordInvalidNamespace(&changed.notices[i])
	}
}
