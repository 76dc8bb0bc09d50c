package replicaset

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/deletionorder"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/slowstart"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// burst bounds how many pods one reconcile creates or deletes. The pods'
// events bring the key back for the rest.
const burst = 500

// managed is what a reconcile did about the number of pods. The zero value
// stands for one that did not look.
type managed struct {
	// looked is true if the number of pods was compared with what is wanted.
	looked bool
	// changed is how many pods were created or deleted.
	changed int
	// err of a request, and the reason that the condition gives for it.
	err    error
	reason string
}

// manage creates missing pods or deletes surplus ones.
func (e *engine[T]) manage(ctx context.Context, key work.ObjectName, object T, active []*v1.Pod) managed {
	made := managed{looked: true}
	spec := e.kind.Spec(object)
	switch surplus := len(active) - int(spec.Replicas); {
	case surplus < 0:
		made.reason = podcontrol.FailedCreate
		made.changed, made.err = e.create(ctx, key, object, spec.Template, min(-surplus, burst))
	case surplus > 0:
		made.reason = podcontrol.FailedDelete
		made.changed, made.err = e.delete(ctx, key, object, e.victims(object, active, min(surplus, burst)))
	}
	return made
}

// create creates count pods and returns how many it did.
func (e *engine[T]) create(ctx context.Context, key work.ObjectName, object T, template *v1.PodTemplateSpec, count int) (int, error) {
	if e.doomed.Has(key, object.GetUID()) {
		return 0, nil
	}
	// Its pods would be released at once, and made again without end. The API
	// server stores no such object, but may have got one with a restored store.
	if selector, err := e.kind.Selector(object); err != nil || !selector.Matches(labels.Set(template.Labels)) {
		return 0, errors.Join(errors.New("unable to create pods, selector does not match the labels of the template"), err)
	}
	pod, err := podcontrol.FromTemplate(template, object, metav1.NewControllerRef(object, e.kind.GroupVersionKind()))
	if err != nil {
		return 0, err
	}
	created, err := slowstart.Run(ctx, count, func(ctx context.Context, _ int) error {
		own := *pod // encoding writes to the object for a moment
		_, err := e.control.Create(ctx, object, &own)
		e.unsure.Note(key, err)
		e.doomed.Note(key, object.GetUID(), err)
		return err
	})
	if podcontrol.NamespaceTerminating(err) {
		return created, nil
	}
	return created, err
}

// delete deletes victims at once and returns how many requests did not fail.
func (e *engine[T]) delete(ctx context.Context, key work.ObjectName, object T, victims []*v1.Pod) (int, error) {
	errs := make([]error, len(victims))
	var all sync.WaitGroup
	for i, pod := range victims {
		all.Go(func() { errs[i] = e.control.Delete(ctx, object, pod) })
	}
	all.Wait()

	deleted := 0
	var failed error
	for _, err := range errs {
		switch {
		case err == nil:
			deleted++
		case failed == nil:
			failed = err
		}
		e.unsure.Note(key, err)
	}
	return deleted, failed
}

// victims chooses count of active: those that are the least use, and among
// these the ones on nodes with many like pods.
func (e *engine[T]) victims(object T, active []*v1.Pod, count int) []*v1.Pod {
	if count == len(active) {
		return active
	}
	like := e.likePodsByNode(object, active)
	now := e.clock.Now()
	sorted := deletionorder.Ranked(active, func(pod *v1.Pod) int { return like[pod.Spec.NodeName] }, now, e.options.PodDeletionCost)
	e.metrics.deletion(sorted, count, now)
	return sorted[:count]
}

// likePodsByNode counts the active pods of object and of its siblings, the
// objects with the same controller, such as the other ReplicaSets of a
// Deployment. Pods without a node are counted together.
func (e *engine[T]) likePodsByNode(object T, active []*v1.Pod) map[string]int {
	counts := map[string]int{}
	for _, pod := range active {
		counts[pod.Spec.NodeName]++
	}
	controller, ok := ownerindex.ControllerOf(object)
	if !ok {
		return counts
	}
	siblings, err := ownerindex.Owned[T](e.objects, controller)
	if err != nil {
		e.logger.Error("Cannot list siblings, pods are spread without regard to theirs", "object", object.GetName(), "err", err)
	}
	for _, sibling := range siblings {
		if sibling.GetUID() == object.GetUID() {
			continue
		}
		pods, err := ownerindex.Owned[*v1.Pod](e.pods, ownerindex.OwnerOf(e.kind.GroupVersionKind().Kind, sibling))
		if err != nil {
			e.logger.Error("Cannot list a sibling's pods, pods are spread without regard to them", "object", sibling.GetName(), "err", err)
		}
		for _, pod := range availability.Active(pods) {
			counts[pod.Spec.NodeName]++
		}
	}
	return counts
}
