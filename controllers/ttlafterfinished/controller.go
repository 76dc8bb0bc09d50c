// Package ttlafterfinished deletes Jobs that have finished and whose
// spec.ttlSecondsAfterFinished has passed since, with everything they own. A
// TTL that is changed or removed in time is honoured.
package ttlafterfinished

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var jobResource = batchv1.SchemeGroupVersion.WithResource("jobs")

// Descriptor describes ttl-after-finished-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.TTLAfterFinishedControllerSection(),
		ServiceAccount: "ttl-after-finished-controller",
		Requires:       []apischema.GroupVersionResource{jobResource},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "delete"}},
		},
		New: controller.NewFor(New),
	}
}

// ttlController reconciles Jobs, by namespace and name.
type ttlController struct {
	client    kubernetes.Interface
	logger    *slog.Logger
	clock     clock.PassiveClock
	jobs      batchlisters.JobLister
	queue     *work.Queue[work.ObjectName]
	deletions prometheus.Histogram
}

// New makes the controller.
func New(env controller.Env, _ *schema.TTLAfterFinishedController) (*controller.Controller, error) {
	informer, err := env.Informers.Informer(jobResource)
	if err != nil {
		return nil, fmt.Errorf("watch jobs: %w", err)
	}
	deletions, err := registerDeletions(env.Metrics)
	if err != nil {
		return nil, err
	}
	c := &ttlController{
		client:    env.Client,
		logger:    env.Logger,
		clock:     env.Clock,
		jobs:      batchlisters.NewJobLister(informer.Indexer()),
		deletions: deletions,
	}
	c.queue = work.NewQueue(env.Work, work.Options[work.ObjectName]{Name: "ttl_jobs_to_delete", Reconcile: c.reconcile})
	if err := informer.AddEventHandler(c.jobHandler()); err != nil {
		return nil, fmt.Errorf("watch jobs: %w", err)
	}
	return &controller.Controller{}, nil
}

// jobHandler lets reconcile see every Job whose time may come. Deletions need
// nothing: a key that waits for a Job that is gone ends by itself.
func (c *ttlController) jobHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if job, ok := obj.(*batchv1.Job); ok && expires(job) {
				c.queue.AddEvent(cache.MetaObjectToName(job), isInInitialList)
			}
		},
		UpdateFunc: func(_, obj any) {
			if job, ok := obj.(*batchv1.Job); ok && expires(job) {
				c.queue.Add(cache.MetaObjectToName(job))
			}
		},
	}
}

// reconcile deletes a Job that has expired, and comes back for one that will.
func (c *ttlController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	// 1. The cache tells when it is too early, at no cost.
	cached, err := c.jobs.Jobs(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up job %s: %w", key, err)
	}
	if due, result, err := c.due(cached); !due {
		return result, err
	}

	// 2. Only the API server can tell whether the Job is the same one, and
	// whether somebody has given it more time.
	live, err := c.client.BatchV1().Jobs(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if notfound.ByAPIServer(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("get job %s: %w", key, err)
	}
	if due, result, err := c.due(live); !due {
		return result, err
	}

	// 3. It has expired. What it owns goes first, and another Job of that name
	// that may have come since stays.
	foreground := metav1.DeletePropagationForeground
	err = c.client.BatchV1().Jobs(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		PropagationPolicy: &foreground,
		Preconditions:     &metav1.Preconditions{UID: &live.UID},
	})
	if notfound.ByAPIServer(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("delete job %s: %w", key, err)
	}
	if expiry, err := expiryOf(live); err == nil {
		c.deletions.Observe(c.clock.Since(expiry).Seconds())
	}
	return work.Result{}, nil
}

// due tells whether job has to be deleted now. When it is false, the other
// results are what reconcile returns.
func (c *ttlController) due(job *batchv1.Job) (bool, work.Result, error) {
	if !expires(job) {
		return false, work.Result{}, nil
	}
	expiry, err := expiryOf(job)
	if err != nil {
		return false, work.Result{}, err
	}
	now := c.clock.Now()
	if finish := expiry.Add(-ttlOf(job)); finish.After(now) {
		c.logger.Warn("Job finished in the future: the clocks of this machine and of the one that set its condition differ; "+
			"it is deleted later",
			"job", cache.MetaObjectToName(job).String(), "finish", finish, "now", now)
	}
	if remaining := expiry.Sub(now); remaining > 0 {
		return false, work.Result{RequeueAfter: remaining}, nil
	}
	return true, work.Result{}, nil
}
