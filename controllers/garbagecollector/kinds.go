package garbagecollector

import (
	"slices"
	"sync"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
)

// kinds knows the resource of each kind, and keeps the tasks that wait for a
// kind that is not served.
type kinds struct {
	mu sync.Mutex
	// known changes as a whole.
	known   map[apischema.GroupVersionKind]kind
	version int64
	waiting held
}

type kind struct {
	resource   apischema.GroupVersionResource
	namespaced bool
}

// set the served resources, and take the tasks that wait.
func (k *kinds) set(resources map[apischema.GroupVersionResource]discovery.Resource) changes {
	known := make(map[apischema.GroupVersionKind]kind, len(resources))
	for gvr, resource := range resources {
		gvk := gvr.GroupVersion().WithKind(resource.Kind)
		other, taken := known[gvk]
		if !slices.Contains(resource.Verbs, "get") || taken && other.resource.Resource < gvr.Resource {
			continue
		}
		known[gvk] = kind{gvr, resource.Namespaced}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = known
	k.version++
	return k.waiting.take()
}

// find the resource of a kind. The version tells wait what was known.
func (k *kinds) find(apiVersion, name string) (found kind, version int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok = k.known[apischema.FromAPIVersionAndKind(apiVersion, name)]
	return found, k.version, ok
}

// wait keeps a task until other kinds are served than in version; false when they are already.
func (k *kinds) wait(t task, version int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.version != version {
		return false
	}
	k.waiting.add(changes{tasks: []task{t}})
	return true
}
