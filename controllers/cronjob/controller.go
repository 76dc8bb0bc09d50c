// Package cronjob creates the Jobs of CronJobs at the times that their
// schedules name: one for each time, never two, also across crashes and
// restarts. It keeps the status of a CronJob and deletes Jobs beyond the
// history limits. After an outage only the most recent time is made up.
package cronjob

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var (
	cronJobResource = batchv1.SchemeGroupVersion.WithResource("cronjobs")
	jobResource     = batchv1.SchemeGroupVersion.WithResource("jobs")
	cronJobKind     = batchv1.SchemeGroupVersion.WithKind("CronJob")
)

// maxRetries is how often a failing CronJob is tried with back-off, about three
// minutes in all. After that it is tried at the slow pace of the queue, and at
// its next time.
const maxRetries = 15

// Descriptor describes cronjob-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.CronJobControllerSection(),
		ServiceAccount: "cronjob-controller",
		Requires:       []apischema.GroupVersionResource{cronJobResource, jobResource},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"batch"}, Resources: []string{"cronjobs"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"batch"}, Resources: []string{"cronjobs/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"batch"}, Resources: []string{"cronjobs/finalizers"}, Verbs: []string{"update"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		},
		New: controller.NewFor(New),
	}
}

// cronJobController reconciles CronJobs, by namespace and name.
type cronJobController struct {
	client   kubernetes.Interface
	cronJobs cache.Indexer
	jobs     cache.Indexer
	events   record.EventRecorder
	logger   *slog.Logger
	clock    clock.PassiveClock
	skew     prometheus.Histogram
	queue    *work.Queue[work.ObjectName]
	zones    zoneCache
}

// New makes the controller.
func New(env controller.Env, _ *schema.CronJobController) (*controller.Controller, error) {
	cronJobs, err := env.Informers.Informer(cronJobResource)
	if err != nil {
		return nil, fmt.Errorf("watch cronjobs: %w", err)
	}
	jobs, err := env.Informers.Informer(jobResource)
	if err != nil {
		return nil, fmt.Errorf("watch jobs: %w", err)
	}
	if err := jobs.AddIndexers(ownerindex.Controllers()); err != nil {
		return nil, fmt.Errorf("index jobs: %w", err)
	}
	skew, err := registerSkew(env.Metrics)
	if err != nil {
		return nil, err
	}
	c := &cronJobController{
		client:   env.Client,
		cronJobs: cronJobs.Indexer(),
		jobs:     jobs.Indexer(),
		events:   env.Events,
		logger:   env.Logger,
		clock:    env.Clock,
		skew:     skew,
	}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{Name: "cronjob", Reconcile: c.reconcile, MaxRetries: maxRetries})
	if err := cronJobs.AddEventHandler(c.cronJobHandler()); err != nil {
		return nil, fmt.Errorf("watch cronjobs: %w", err)
	}
	if err := jobs.AddEventHandler(c.jobHandler()); err != nil {
		return nil, fmt.Errorf("watch jobs: %w", err)
	}
	return &controller.Controller{}, nil
}
