package replicaset

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/holdback"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// report writes the status of object if it differs from what is stored. It
// returns after which time the key must come back for what was held back.
func (e *engine[T]) report(
	ctx context.Context, key work.ObjectName, object T, pods ownPods, made managed, now time.Time,
) (time.Duration, error) {
	stored := e.kind.Status(object)
	status := e.status(object, stored, pods, made, now)
	// What was created and deleted without an error is seen in a moment, and the
	// present counts are obsolete.
	obsolete := made.changed > 0 && made.err == nil

	if equal(stored, status) {
		e.held.Written(key)
		if obsolete {
			return holdback.Longest, nil
		}
		return 0, nil
	}
	if obsolete || !urgent(stored, status) {
		if wait := e.held.Wait(key, now); wait > 0 {
			return wait, nil
		}
	}
	answer, err := e.kind.UpdateStatus(ctx, object, status)
	switch {
	case apierrors.IsConflict(err), notfound.ByAPIServer(err):
		// The object has changed or gone since; its event brings the key back.
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("update status of %s: %w", key, err)
	}
	e.held.Written(key)
	if status.Terminating != nil && e.kind.Status(answer).Terminating == nil {
		// An API server without the field. Comparing with it would write for ever.
		e.terminatingDropped.Store(true)
	}
	return 0, nil
}

// status tells what there is, by pods that were listed before made came about.
func (e *engine[T]) status(object T, stored Status, pods ownPods, made managed, now time.Time) Status {
	spec := e.kind.Spec(object)
	status := Status{
		Replicas:           int32(len(pods.active)),
		ObservedGeneration: object.GetGeneration(),
		Failure:            failure(stored.Failure, made, now),
	}
	template := labels.SelectorFromSet(spec.Template.Labels)
	for _, pod := range pods.active {
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeled++
		}
		if availability.IsReady(pod) {
			status.Ready++
			if availability.IsAvailable(pod, spec.MinReadySeconds, now) {
				status.Available++
			}
		}
	}
	if e.options.CountTerminating && !e.terminatingDropped.Load() {
		status.Terminating = ptr.To(int32(len(pods.terminating)))
	}
	return status
}

// failure is the condition after made: it appears with the first error, stays
// as it is while there are more, and goes when the number of pods was looked at
// without one.
func failure(stored *Failure, made managed, now time.Time) *Failure {
	switch {
	case !made.looked:
		return stored
	case made.err == nil:
		return nil
	case stored != nil:
		return stored
	}
	return &Failure{
		Status:             v1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now),
		Reason:             made.reason,
		Message:            made.err.Error(),
	}
}

func equal(a, b Status) bool {
	return a.Replicas == b.Replicas && a.FullyLabeled == b.FullyLabeled && a.Ready == b.Ready && a.Available == b.Available &&
		a.ObservedGeneration == b.ObservedGeneration && ptr.Equal(a.Terminating, b.Terminating) && ptr.Equal(a.Failure, b.Failure)
}

// urgent tells whether somebody may wait for the change from before to after.
// Not urgent are counts on their way: more pods ready or available, but not all
// yet; fewer terminating, but still some.
func urgent(before, after Status) bool {
	onTheWay := before
	onTheWay.Ready, onTheWay.Available, onTheWay.Terminating = after.Ready, after.Available, after.Terminating
	return !equal(onTheWay, after) ||
		holdback.Turned(before.Ready, after.Ready, after.Replicas) ||
		holdback.Turned(before.Available, after.Available, after.Replicas) ||
		(before.Terminating == nil) != (after.Terminating == nil) ||
		after.Terminating != nil && holdback.Turned(-*before.Terminating, -*after.Terminating, 0)
}
