// Package clusterroleaggregation fills the rules of ClusterRoles that have an
// aggregationRule with those of all ClusterRoles that its selectors match, and
// keeps them so. The roles admin, edit and view work this way.
package clusterroleaggregation

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var clusterRoles = rbacv1.SchemeGroupVersion.WithResource("clusterroles")

// aggregatedIndex has the aggregated ClusterRoles under aggregatedKey.
const (
	aggregatedIndex = "aggregated"
	aggregatedKey   = "true"
)

// Descriptor describes clusterrole-aggregation-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.ClusterRoleAggregationControllerSection(),
		ServiceAccount: "clusterrole-aggregation-controller",
		Requires:       []apischema.GroupVersionResource{clusterRoles},
		Rules: []rbacv1.PolicyRule{
			// Without escalate nobody may give a role rules that he does not have himself.
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"},
				Verbs: []string{"escalate", "get", "list", "watch", "update", "patch"}},
		},
		New: controller.NewFor(New),
	}
}

// aggregator reconciles aggregated ClusterRoles, by name.
type aggregator struct {
	client  kubernetes.Interface
	indexer cache.Indexer
	roles   rbaclisters.ClusterRoleLister
	queue   *work.Queue[string]
}

// New makes the controller.
func New(env controller.Env, _ *schema.ClusterRoleAggregationController) (*controller.Controller, error) {
	informer, err := env.Informers.Informer(clusterRoles)
	if err != nil {
		return nil, fmt.Errorf("watch cluster roles: %w", err)
	}
	if err := informer.AddIndexers(cache.Indexers{aggregatedIndex: indexAggregated}); err != nil {
		return nil, fmt.Errorf("index cluster roles: %w", err)
	}
	c := &aggregator{
		client:  env.Client,
		indexer: informer.Indexer(),
		roles:   rbaclisters.NewClusterRoleLister(informer.Indexer()),
	}
	c.queue = work.NewQueue(env.Work, work.Options[string]{Name: "ClusterRoleAggregator", Reconcile: c.reconcile})
	if err := informer.AddEventHandler(c.handler()); err != nil {
		return nil, fmt.Errorf("watch cluster roles: %w", err)
	}
	return &controller.Controller{}, nil
}

func indexAggregated(obj any) ([]string, error) {
	if role, ok := obj.(*rbacv1.ClusterRole); ok && role.AggregationRule != nil {
		return []string{aggregatedKey}, nil
	}
	return nil, nil
}

// handler lets every aggregated role be looked at when any role may matter to
// one. They are few, and what depends on what is seen best by looking.
func (c *aggregator) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, isInInitialList bool) { c.enqueueAll(isInInitialList) },
		UpdateFunc: func(before, now any) {
			if !sameSource(before, now) {
				c.enqueueAll(false)
			}
		},
		DeleteFunc: func(any) { c.enqueueAll(false) },
	}
}

func (c *aggregator) enqueueAll(isInInitialList bool) {
	keys, err := c.indexer.IndexKeys(aggregatedIndex, aggregatedKey)
	if err != nil {
		return // not possible: New has added the index
	}
	for _, key := range keys {
		c.queue.AddEvent(key, isInInitialList)
	}
}

// sameSource tells that a role has changed in nothing that aggregation depends on.
func sameSource(before, now any) bool {
	a, ok := before.(*rbacv1.ClusterRole)
	if !ok {
		return false
	}
	b, ok := now.(*rbacv1.ClusterRole)
	return ok && a.UID == b.UID &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Rules, b.Rules) &&
		equality.Semantic.DeepEqual(a.AggregationRule, b.AggregationRule)
}

// reconcile gives an aggregated role the rules of those that it selects.
func (c *aggregator) reconcile(ctx context.Context, name string) (work.Result, error) {
	role, err := c.roles.Get(name)
	if apierrors.IsNotFound(err) {
		return work.Result{}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("look up cluster role %s: %w", name, err)
	}
	if role.AggregationRule == nil {
		return work.Result{}, nil
	}
	rules, err := aggregate(role, c.roles)
	if err != nil {
		return work.Result{}, fmt.Errorf("aggregate cluster role %s: %w", name, err)
	}
	if equality.Semantic.DeepEqual(role.Rules, rules) {
		return work.Result{}, nil
	}
	return c.apply(ctx, role, rules)
}
