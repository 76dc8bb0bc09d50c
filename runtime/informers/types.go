// Package informers lends shared informers to controllers: one per resource
// in the process, started by its first user and stopped after its last.
//
// A controller has a [Lease] for each of its lives. Informers come from
// client-go (cache.SharedIndexInformer); this package adds who uses which, and
// what client-go leaves open: handlers that have certainly ended, stores that
// have certainly seen a write, and watches that come back soon after an outage.
//
// Objects in stores and in events are shared by all users and must not be
// changed. Tests find out who does with KUBE_CACHE_MUTATION_DETECTOR=true in
// the environment, at which client-go panics when a stored object has changed.
package informers

import "k8s.io/apimachinery/pkg/runtime/schema"

// Status of one informer.
type Status struct {
	// Resource as RESOURCE.VERSION.GROUP, such as deployments.v1.apps or pods.v1.
	Resource string `json:"resource"`
	// GroupVersionResource is the same in parts.
	GroupVersionResource schema.GroupVersionResource `json:"-"`
	// Metadata is true when only object metadata is kept.
	Metadata bool `json:"metadata"`
	// Selection says which objects are kept; empty for all.
	Selection string `json:"selection,omitempty"`
	// Users by name; none when the informer lingers for the next one.
	Users []string `json:"users"`
	// Monitored only: nobody depends on the informer, see Lease.Monitor.
	Monitored bool `json:"monitored,omitempty"`
	Objects   int  `json:"objects"`
	Synced    bool `json:"synced"`
	// ResourceVersion up to which the store is current.
	ResourceVersion string `json:"resourceVersion"`
	// Lists and Watches are the requests it has made.
	Lists   int64 `json:"lists"`
	Watches int64 `json:"watches"`
	// LastError of its list or watch, empty when it works.
	LastError string `json:"lastError,omitempty"`
}

// key tells one informer of a pool from the others.
type key struct {
	gvr       schema.GroupVersionResource
	metadata  bool
	selection Selection
}

// name of the resource as kubectl takes it, and as Status.Resource says.
func (k key) name() string {
	name := k.gvr.Resource + "." + k.gvr.Version
	if k.gvr.Group != "" {
		name += "." + k.gvr.Group
	}
	return name
}

func (k key) String() string {
	switch {
	case k.metadata:
		return k.name() + " (metadata)"
	case k.selection != Selection{}:
		return k.name() + " (" + k.selection.String() + ")"
	default:
		return k.name()
	}
}
