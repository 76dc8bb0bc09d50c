package resourcequota

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
)

// evaluator knows what the objects of one built-in resource use. What only
// the API server's admission asks of an evaluator is left empty.
type evaluator struct {
	resource apischema.GroupResource
	list     generic.ListFuncByNamespace
	matches  generic.MatchingResourceNamesFunc
	inScope  generic.MatchesScopeFunc
	usage    generic.UsageFunc
	// frees tells whether an update may make some quota's usage less or another
	// quota's more. Nil when none does.
	frees func(before, after runtime.Object) bool
	// grows tells whether an update may have been charged. Nil when none is.
	grows func(before, after runtime.Object) bool
}

var _ quota.Evaluator = (*evaluator)(nil)

// Constraints implements quota.Evaluator.
func (*evaluator) Constraints([]corev1.ResourceName, runtime.Object) error { return nil }

// GroupResource implements quota.Evaluator.
func (e *evaluator) GroupResource() apischema.GroupResource { return e.resource }

// Handles implements quota.Evaluator.
func (*evaluator) Handles(admission.Attributes) bool { return false }

// Matches implements quota.Evaluator.
func (e *evaluator) Matches(q *corev1.ResourceQuota, object runtime.Object) (bool, error) {
	return generic.Matches(q, object, e.matches, e.inScope)
}

// MatchingScopes implements quota.Evaluator.
func (*evaluator) MatchingScopes(
	runtime.Object, []corev1.ScopedResourceSelectorRequirement,
) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return nil, nil
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (*evaluator) UncoveredQuotaScopes(
	_, _ []corev1.ScopedResourceSelectorRequirement,
) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return nil, nil
}

// MatchingResources implements quota.Evaluator.
func (e *evaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return e.matches(names)
}

// Usage implements quota.Evaluator.
func (e *evaluator) Usage(object runtime.Object) (corev1.ResourceList, error) { return e.usage(object) }

// UsageStats implements quota.Evaluator.
func (e *evaluator) UsageStats(o quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(o, e.list, e.inScope, e.usage)
}

// oldNames of counts, from before count/RESOURCE was there.
var oldNames = map[apischema.GroupResource]corev1.ResourceName{
	{Resource: "configmaps"}:             corev1.ResourceConfigMaps,
	{Resource: "resourcequotas"}:         corev1.ResourceQuotas,
	{Resource: "replicationcontrollers"}: corev1.ResourceReplicationControllers,
	{Resource: "secrets"}:                corev1.ResourceSecrets,
}

// evaluatorFor what a monitor shows.
func (c *quotaController) evaluatorFor(m *monitors.Monitor) quota.Evaluator {
	list := lister(m)
	switch m.Resource {
	case pods:
		return c.podEvaluator(list)
	case services:
		return serviceEvaluator(list)
	case persistentVolumeClaims:
		return claimEvaluator(list)
	case resourceClaims:
		return c.resourceClaimEvaluator(list, m.Informer.Indexer())
	}
	resource := m.Resource.GroupResource()
	return generic.NewObjectCountEvaluator(resource, list, oldNames[resource])
}

// lister of a monitor's objects, which fails until all of them have been shown.
func lister(m *monitors.Monitor) generic.ListFuncByNamespace {
	return func(namespace string) ([]runtime.Object, error) {
		if !m.Informer.HasSynced() {
			return nil, fmt.Errorf("%s not yet synced", m.Resource)
		}
		stored, err := m.Informer.Indexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return nil, err
		}
		objects := make([]runtime.Object, 0, len(stored))
		for _, object := range stored {
			o, err := as[runtime.Object](object)
			if err != nil {
				return nil, err
			}
			objects = append(objects, o)
		}
		return objects, nil
	}
}

// as asserts the type of a cached object.
func as[T any](object any) (T, error) {
	typed, ok := object.(T)
	if !ok {
		return typed, fmt.Errorf("object is a %T, want a %T", object, typed)
	}
	return typed, nil
}

// onUpdate adapts a function of T to evaluator.frees and evaluator.grows.
func onUpdate[T any](changed func(before, after T) bool) func(before, after runtime.Object) bool {
	return func(before, after runtime.Object) bool {
		b, err := as[T](before)
		if err != nil {
			return false
		}
		a, err := as[T](after)
		return err == nil && changed(b, a)
	}
}
