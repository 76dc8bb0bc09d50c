package servicepods

import (
	"log/slog"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice/util"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
)

// Handler calls enqueue for each Service whose endpoints an event of a pod may
// change. services is the store of Services, indexed by ServiceIndexers. The
// initial list is left out: all Services are reconciled at a start anyhow.
func Handler(services cache.Indexer, enqueue func(cache.ObjectName), logger *slog.Logger) cache.ResourceEventHandler {
	affected := func(before, after *v1.Pod) {
		names, err := Affected(services, before, after)
		if err != nil {
			logger.Error("Cannot tell whose endpoints a pod is among", "err", err)
		}
		for _, name := range names {
			enqueue(name)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if pod, ok := obj.(*v1.Pod); ok && !isInInitialList {
				affected(nil, pod)
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*v1.Pod)
			after, ok2 := newObj.(*v1.Pod)
			if ok && ok2 {
				affected(before, after)
			}
		},
		DeleteFunc: func(obj any) {
			if pod, ok := ownerevents.Deleted[*v1.Pod](obj); ok {
				affected(pod, nil)
			}
		},
	}
}

// Affected returns the Services whose endpoints may differ after a pod has
// changed; before is nil when it was created, after when it was deleted. A pod
// that has no endpoints, since it has no address or has finished, affects nobody.
func Affected(services cache.Indexer, before, after *v1.Pod) ([]cache.ObjectName, error) {
	was, is := endpointOf(before), endpointOf(after)
	switch {
	case !was.exists && !is.exists, before != nil && after != nil && before.ResourceVersion == after.ResourceVersion:
		return nil, nil
	case !was.exists:
		return names(services, after)
	case !is.exists:
		return names(services, before)
	}
	changed := !was.equal(is)
	if maps.Equal(before.Labels, after.Labels) {
		if !changed {
			return nil, nil
		}
		return names(services, after)
	}
	left, err := names(services, before)
	if err != nil {
		return nil, err
	}
	joined, err := names(services, after)
	if err != nil {
		return nil, err
	}
	var affected []cache.ObjectName
	for _, name := range left {
		if changed || !slices.Contains(joined, name) {
			affected = append(affected, name)
		}
	}
	for _, name := range joined {
		if !slices.Contains(left, name) {
			affected = append(affected, name)
		}
	}
	return affected, nil
}

func names(services cache.Indexer, pod *v1.Pod) ([]cache.ObjectName, error) {
	matching, err := Services(services, pod)
	if err != nil {
		return nil, err
	}
	found := make([]cache.ObjectName, len(matching))
	for i, service := range matching {
		found[i] = cache.MetaObjectToName(service)
	}
	return found, nil
}

// endpoint is what endpoints say of a pod, but for what never changes. A pod of
// the same name is another one: after an interrupted watch its creation may come
// as an update.
type endpoint struct {
	uid                        types.UID
	exists, ready, terminating bool
	hostname, subdomain, node  string
	addresses                  []v1.PodIP
}

func endpointOf(pod *v1.Pod) endpoint {
	if pod == nil || !util.ShouldPodBeInEndpoints(pod, true) {
		return endpoint{}
	}
	return endpoint{
		uid:         pod.UID,
		exists:      true,
		ready:       util.IsPodReady(pod),
		terminating: pod.DeletionTimestamp != nil,
		hostname:    pod.Spec.Hostname,
		subdomain:   pod.Spec.Subdomain,
		node:        pod.Spec.NodeName,
		addresses:   pod.Status.PodIPs,
	}
}

func (e endpoint) equal(o endpoint) bool {
	return e.uid == o.uid && e.exists == o.exists && e.ready == o.ready && e.terminating == o.terminating &&
		e.hostname == o.hostname && e.subdomain == o.subdomain && e.node == o.node && slices.Equal(e.addresses, o.addresses)
}
