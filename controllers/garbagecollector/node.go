package garbagecollector

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// identity is an object by its coordinates and UID, as observed or as a
// reference claims it. namespace is empty for cluster-scoped objects.
type identity struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

// claimOf a reference, made by a dependent in namespace. Whether the kind has
// namespaces at all is not known here.
func claimOf(ref *metav1.OwnerReference, namespace string) identity {
	return identity{ref.APIVersion, ref.Kind, namespace, ref.Name, ref.UID}
}

// clusterScoped is the same without a namespace.
func (i identity) clusterScoped() identity {
	i.namespace = ""
	return i
}

// object is what the graph is told of an object.
type object struct {
	identity
	resource apischema.GroupVersionResource
	owners   []metav1.OwnerReference
	// deleting tells that it has a deletionTimestamp; orphan and foreground, that
	// it has the finalizer of that policy besides.
	deleting, orphan, foreground bool
}

// node is an object of the graph, or a UID that objects refer to.
type node struct {
	// identity is the true one once observed, before that what the first reference claims.
	identity
	// resource of the monitor that has observed it.
	resource apischema.GroupVersionResource
	// observed by a monitor and not deleted since.
	observed                     bool
	deleting, orphan, foreground bool
	// requested tells that its deletion has been accepted since it was last seen.
	requested bool
	// owners as last seen. The slice belongs to the informer.
	owners []metav1.OwnerReference
	// dependents refer to the node's UID. Nil when there are none.
	dependents map[types.UID]*node
	// absent are claims that are known to be wrong: no such object exists. Only of unobserved nodes.
	absent map[identity]struct{}
	// since when it has been unobserved.
	since time.Time
}

// matches tells whether a reference by a dependent in namespace names the observed node.
func (n *node) matches(ref *metav1.OwnerReference, namespace string) bool {
	return n.apiVersion == ref.APIVersion && n.kind == ref.Kind && n.name == ref.Name && n.reaches(namespace)
}

// reaches tells whether objects in namespace may be owned by the observed node.
func (n *node) reaches(namespace string) bool {
	return n.namespace == "" || n.namespace == namespace
}

// lacks tells whether the object that a claim names is known not to exist.
func (n *node) lacks(claim identity) bool {
	if n.observed || len(n.absent) == 0 {
		return false
	}
	_, ok := n.absent[claim]
	if !ok {
		_, ok = n.absent[claim.clusterScoped()]
	}
	return ok
}

// refersTo calls f with each reference of n to a UID.
func (n *node) refersTo(uid types.UID, f func(*metav1.OwnerReference)) {
	for i := range n.owners {
		if n.owners[i].UID == uid {
			f(&n.owners[i])
		}
	}
}

// blocks tells whether n's reference keeps an owner from ending a foreground deletion.
func (n *node) blocks(owner types.UID) bool { return blocks(n.owners, owner) }

func blocks(owners []metav1.OwnerReference, owner types.UID) bool {
	for i := range owners {
		if owners[i].UID == owner && ptr.Deref(owners[i].BlockOwnerDeletion, false) {
			return true
		}
	}
	return false
}

func refers(owners []metav1.OwnerReference, owner types.UID) bool {
	for i := range owners {
		if owners[i].UID == owner {
			return true
		}
	}
	return false
}
