package replicaset

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/claim"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// reconcile brings the pods of one object to the number that it asks for. The
// engine's queue calls it when the caches hold all that the last call wrote.
func (e *engine[T]) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	// 1. After a request whose outcome is not known, the caches may lack what it did.
	if err := e.unsure.Settle(ctx, key); err != nil {
		return work.Result{}, err
	}

	// 2. The object is gone: the garbage collector cares for its pods.
	object, exists, err := e.get(key)
	if err != nil || !exists {
		e.doomed.Forget(key)
		e.held.Written(key)
		return work.Result{}, err
	}

	// 3. A selector that no retry makes valid.
	selector, err := e.kind.Selector(object)
	if err != nil {
		e.logger.Error("Selector is invalid, nothing is done", "object", key, "err", err)
		return work.Result{}, nil
	}

	// 4. Which pods are the object's.
	pods, err := e.podsOf(ctx, object, selector)
	if err != nil {
		return work.Result{}, err
	}

	// 5. Too few or too many.
	var made managed
	if object.GetDeletionTimestamp() == nil {
		made = e.manage(ctx, key, object, pods.active)
		if made.err != nil && podcontrol.GivenUp(ctx, made.err) {
			return work.Result{}, made.err // of our own doing: nothing to report
		}
	}

	// 6. Tell how many there are.
	now := e.clock.Now()
	wait, err := e.report(ctx, key, object, pods, made, now)
	if err != nil {
		return work.Result{}, err
	}

	// 7. Ready pods become available without an event, also beside missing ones.
	if next, found := availability.NextCheck(pods.active, e.kind.Spec(object).MinReadySeconds, now, e.clock); found {
		wait = work.Soonest(wait, max(next, time.Millisecond))
	}
	return work.Result{RequeueAfter: wait}, made.err
}

func (e *engine[T]) get(key work.ObjectName) (T, bool, error) {
	var none T
	obj, exists, err := e.objects.GetByKey(key.String())
	if err != nil {
		return none, false, fmt.Errorf("get %s: %w", key, err)
	}
	if !exists {
		return none, false, nil
	}
	object, ok := obj.(T)
	if !ok {
		return none, false, fmt.Errorf("get %s: store has a %T, want a %T", key, obj, none)
	}
	return object, true, nil
}

// ownPods are the pods that belong to an object.
type ownPods struct{ active, terminating []*v1.Pod }

// podsOf adopts and releases pods, and returns those of object. Finished and
// terminating pods are neither adopted nor released.
func (e *engine[T]) podsOf(ctx context.Context, object T, selector labels.Selector) (ownPods, error) {
	kind := e.kind.GroupVersionKind()
	candidates, err := ownerindex.Candidates[*v1.Pod](e.pods, ownerindex.OwnerOf(kind.Kind, object))
	if err != nil {
		return ownPods{}, err
	}
	claims := claim.Claims[*v1.Pod]{
		Owner:     object,
		OwnerKind: kind,
		Kind:      "Pod",
		Selector:  selector,
		GetOwner: func(ctx context.Context, name string) (metav1.Object, error) {
			return e.kind.Get(ctx, object.GetNamespace(), name)
		},
		Patch: claim.PatchPod(e.control.Client),
	}
	active, err := claims.Claim(ctx, availability.Active(candidates))
	if err != nil {
		return ownPods{}, err
	}
	pods := ownPods{active: active}
	for _, pod := range availability.Terminating(candidates) {
		if metav1.IsControlledBy(pod, object) && selector.Matches(labels.Set(pod.Labels)) {
			pods.terminating = append(pods.terminating, pod)
		}
	}
	return pods, nil
}
