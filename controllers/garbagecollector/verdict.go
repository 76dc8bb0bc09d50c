package garbagecollector

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// verdict on an object: its owners by their states.
type verdict struct {
	solid, dangling, waiting []types.UID
	// released are those dangling ones whose dependents were orphaned.
	released []types.UID
	unjudged
}

// unjudged says why an object cannot be judged: it stays.
type unjudged struct {
	// hopeless references can never be followed.
	hopeless bool
	// unknownKind is not served, as far as kindsVersion knows.
	unknownKind  bool
	kindsVersion int64
}

// removable references: those of owners that do not hold the object, unless
// another reference to the same UID does.
func (v *verdict) removable() []types.UID {
	return slices.DeleteFunc(slices.Concat(v.dangling, v.waiting), func(uid types.UID) bool {
		return slices.Contains(v.solid, uid)
	})
}

// judge an object by its owners.
func (c *collector) judge(ctx context.Context, s *subject) (verdict, error) {
	var v verdict
	for i := range s.owners {
		ref := &s.owners[i]
		found, err := c.ownerOf(ctx, s, ref)
		if err != nil {
			return v, err
		}
		if found.hopeless || found.unknownKind {
			v.unjudged = found.unjudged
			return v, nil
		}
		switch found.state {
		case solid:
			v.solid = append(v.solid, ref.UID)
		case waiting:
			v.waiting = append(v.waiting, ref.UID)
		default:
			v.dangling = append(v.dangling, ref.UID)
			if c.graph.wasOrphaned(ref.UID) {
				v.released = append(v.released, ref.UID)
			}
		}
	}
	return v, nil
}

// found is what is known of an owner.
type found struct {
	state state
	unjudged
}

// ownerOf an object: from the graph where that is safe, else from a live read.
// That an owner seems to exist can only keep an object for longer. That it
// waits in foreground deletion costs the object's life, so that a live read
// must have said so within the last second.
func (c *collector) ownerOf(ctx context.Context, s *subject, ref *metav1.OwnerReference) (found, error) {
	switch known := c.graph.owner(ref, s.namespace); known {
	case absent, solid:
		return found{state: known}, nil
	case waiting:
		claim := claimOf(ref, s.namespace)
		if _, ok := c.waiting.Get(claim); ok {
			return found{state: waiting}, nil
		}
		live, err := c.lookUp(ctx, ref, s.namespace)
		if err == nil && live.state == waiting {
			c.waiting.Add(claim, struct{}{}, waitingFor)
		}
		return live, err
	default:
		return c.lookUp(ctx, ref, s.namespace)
	}
}

// lookUp the owner that a reference by a dependent in namespace names. The
// graph learns of its absence.
func (c *collector) lookUp(ctx context.Context, ref *metav1.OwnerReference, namespace string) (found, error) {
	kind, version, ok := c.kinds.find(ref.APIVersion, ref.Kind)
	if !ok {
		return found{unjudged: unjudged{unknownKind: true, kindsVersion: version}}, nil
	}
	claim := claimOf(ref, namespace)
	switch {
	case !kind.namespaced:
		claim = claim.clusterScoped()
	case namespace == "":
		return found{unjudged: unjudged{hopeless: true}}, nil
	}
	live, err := c.client.Resource(kind.resource).Namespace(claim.namespace).Get(ctx, claim.name, metav1.GetOptions{})
	switch {
	case notfound.ByAPIServer(err) || err == nil && live.UID != ref.UID:
		c.apply(c.graph.setAbsent(claim), false)
		return found{state: absent}, nil
	case apierrors.IsNotFound(err):
		// Nobody serves the path, which says nothing about the object.
		return found{}, fmt.Errorf("look up owner %s %s: %s is not served: %w", ref.Kind, ref.Name, kind.resource, err)
	case err != nil:
		return found{}, fmt.Errorf("look up owner %s %s: %w", ref.Kind, ref.Name, err)
	case live.DeletionTimestamp != nil && slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		return found{state: waiting}, nil
	}
	return found{state: solid}, nil
}
