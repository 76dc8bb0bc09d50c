// Package job runs the pods of Jobs to completion. Each finished pod is counted
// exactly once, whatever happens to it or to the controller, because it holds a
// finalizer until a status has its UID or index; see account.
package job

import (
	"fmt"
	"log/slog"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// gateMutableScheduling lets the scheduling directives of a suspended Job be
// changed; the API server asks for a Job without startTime then.
const gateMutableScheduling = "MutableSchedulingDirectivesForSuspendedJobs"

const (
	// batchTime is how long what happens to pods is collected, so that a burst
	// makes one reconcile and one status.
	batchTime = time.Second
	// pace is the least time between two statuses that tell of nothing but
	// counts that are on their way. Pods are replaced without regard to it.
	pace = 2 * time.Second
	// lookAgain is when a reconcile continues that has to see in the caches
	// what it has done. The engine lets it wait until they show it.
	lookAgain = time.Millisecond
	// retryMin and retryMax bound the back-off of a Job whose reconcile fails.
	retryMin = time.Second
	retryMax = time.Minute
)

var (
	jobResource = batchv1.SchemeGroupVersion.WithResource("jobs")
	podResource = v1.SchemeGroupVersion.WithResource("pods")
)

// Descriptor describes job-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:           schema.JobControllerSection(),
		ServiceAccount:    "job-controller",
		Requires:          []apischema.GroupVersionResource{jobResource, podResource},
		ReadsFeatureGates: []string{gateMutableScheduling},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "list", "watch", "update", "patch"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch", "create", "delete", "patch"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "update", "patch"}},
		},
		New: controller.NewFor(New),
	}
}

// jobController reconciles Jobs by name, and pods that hold the finalizer but
// have no unfinished Job any more.
type jobController struct {
	jobs    cache.Indexer
	pods    cache.Indexer
	control podcontrol.Control
	clock   clock.PassiveClock
	logger  *slog.Logger
	metrics *metrics
	notes   *notes
	unsure  *unsettled.Keys
	doomed  *podcontrol.Doomed
	queue   *work.Queue[work.ObjectName]
	orphans *work.Queue[orphanKey]
	// dropStartTime of a Job that is suspended.
	dropStartTime bool
}

// New makes the controller.
func New(env controller.Env, _ *schema.JobController) (*controller.Controller, error) {
	jobs, err := env.Informers.Informer(jobResource)
	if err != nil {
		return nil, fmt.Errorf("lease jobs: %w", err)
	}
	pods, err := env.Informers.Informer(podResource)
	if err != nil {
		return nil, fmt.Errorf("lease pods: %w", err)
	}
	if err := jobs.AddIndexers(ownerindex.Selectors(selectorOf)); err != nil {
		return nil, fmt.Errorf("index jobs: %w", err)
	}
	if err := pods.AddIndexers(ownerindex.Controllers()); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	c := &jobController{
		jobs:          jobs.Indexer(),
		pods:          pods.Indexer(),
		control:       podcontrol.Control{Client: env.Client, Events: env.Events},
		clock:         env.Clock,
		logger:        env.Logger,
		notes:         newNotes(),
		unsure:        unsettled.New(env.Informers.CatchUp, env.Clock),
		doomed:        podcontrol.NewDoomed(),
		dropStartTime: env.FeatureEnabled(gateMutableScheduling),
	}
	if c.metrics, err = newMetrics(env.Metrics, controller.Recall(env.Memory, newSeen)); err != nil {
		return nil, err
	}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{
		Name:      "job",
		Reconcile: c.reconcile,
		Limiter:   workqueue.NewTypedItemExponentialFailureRateLimiter[work.ObjectName](retryMin, retryMax),
		OnStale:   c.metrics.stale,
	})
	c.orphans = work.NewQueue(env.Work, work.Options[orphanKey]{
		Name:      "job_orphan_pod",
		Reconcile: c.reconcileOrphan,
		Limiter:   workqueue.NewTypedItemExponentialFailureRateLimiter[orphanKey](retryMin, retryMax),
	})
	if err := jobs.AddEventHandler(c.jobHandler()); err != nil {
		return nil, fmt.Errorf("watch jobs: %w", err)
	}
	for _, handler := range []cache.ResourceEventHandler{c.podHandler(), c.finalizerHandler()} {
		if err := pods.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch pods: %w", err)
		}
	}
	return &controller.Controller{}, nil
}
