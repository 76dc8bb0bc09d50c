package statefulset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/claim"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// pass is one reconcile of one set.
type pass struct {
	*statefulSetController
	key work.ObjectName
	// set is the cache's and must not be changed.
	set       *appsv1.StatefulSet
	selector  labels.Selector
	retention retention
	ordinals  ordinals
	// now is the one instant at which availability is judged.
	now time.Time
	// fresh is the set as the API server has it, nil if that was not asked for.
	fresh *appsv1.StatefulSet

	// history are the set's revisions, the oldest first.
	history         []*appsv1.ControllerRevision
	current, update *appsv1.ControllerRevision
	collisions      int32

	// members are the set's pods, by ordinal.
	members []member
	status  appsv1.StatefulSetStatus
}

// member is a pod of a set, with its ordinal.
type member struct {
	*v1.Pod
	ordinal int
}

// reconcile brings one set a step further.
func (c *statefulSetController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	if err := c.unsure.Settle(ctx, key); err != nil {
		return work.Result{}, err
	}
	set, err := c.get(key)
	if err != nil || set == nil {
		c.metrics.forget(key)
		c.held.Written(key)
		c.doomed.Forget(key)
		return work.Result{}, err
	}
	selector, err := selectorOf(set)
	if err != nil {
		c.logger.Error("Selector is invalid, nothing is done", "statefulSet", key, "err", err)
		return work.Result{}, nil
	}
	retention, known := retentionOf(set)
	if !known {
		c.logger.Error("Retention policy of claims is not known, they are retained", "statefulSet", key)
	}
	p := &pass{
		statefulSetController: c,
		key:                   key,
		set:                   set,
		selector:              selector,
		retention:             retention,
		ordinals:              ordinalsOf(set),
		now:                   c.clock.Now(),
	}
	return p.run(ctx)
}

func (c *statefulSetController) get(key work.ObjectName) (*appsv1.StatefulSet, error) {
	obj, exists, err := c.sets.GetByKey(key.String())
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", key, err)
	}
	if !exists {
		return nil, nil
	}
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return nil, fmt.Errorf("look up %s: the cache holds a %T", key, obj)
	}
	return set, nil
}

func (p *pass) run(ctx context.Context) (work.Result, error) {
	if err := p.claimPods(ctx); err != nil {
		return work.Result{}, err
	}
	if err := p.findRevisions(ctx); err != nil {
		return work.Result{}, err
	}
	if p.set.Spec.UpdateStrategy.Type == appsv1.RecreateStatefulSetStrategyType && !p.recreate {
		// Nothing but a change of the set, or of the gate, makes that good.
		p.events.Eventf(p.set, v1.EventTypeWarning, unknownStrategy,
			"statefulset %s/%s uses Recreate strategy but feature gate %s is disabled", p.set.Namespace, p.set.Name, gateRecreate)
		return work.Result{}, nil
	}
	p.count()
	wait, err := p.finishDeletions(ctx)
	if err == nil && p.set.DeletionTimestamp == nil && !p.doomed.Has(p.key, p.set.UID) {
		err = p.act(ctx)
		p.doomed.Note(p.key, p.set.UID, err)
		if podcontrol.NamespaceTerminating(err) {
			err = nil // nothing can be created in it any more
		}
	}
	if err != nil && podcontrol.GivenUp(ctx, err) {
		return work.Result{}, err // of our own doing: nothing to report
	}
	p.complete()
	paced, statusErr := p.report(ctx)
	if err == nil {
		err = statusErr
	}
	if p.set.DeletionTimestamp == nil {
		err = errors.Join(err, p.truncateHistory(ctx))
	}
	// Pods become available by the passing of time, whatever has failed.
	return work.Result{RequeueAfter: work.Soonest(work.Soonest(wait, paced), p.nextCheck())}, err
}

// act takes the first step that is to be taken.
func (p *pass) act(ctx context.Context) error {
	if p.set.Spec.UpdateStrategy.Type == appsv1.RecreateStatefulSetStrategyType {
		if waiting, err := p.clearOldPods(ctx); err != nil || waiting {
			return err
		}
	}
	if stopped, err := p.scale(ctx); err != nil || stopped {
		return err
	}
	if p.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		return p.roll(ctx)
	}
	return nil
}

// claimPods adopts and releases pods, and sets members.
func (p *pass) claimPods(ctx context.Context) error {
	candidates, err := ownerindex.Candidates[*v1.Pod](p.pods, ownerindex.OwnerOf(statefulSetKind, p.set))
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	claims := claim.Claims[*v1.Pod]{
		Owner:     p.set,
		OwnerKind: controllerKind,
		Kind:      podKind,
		Selector:  p.selector,
		Match: func(pod *v1.Pod) bool {
			parent, _, ok := splitName(pod.Name)
			return ok && parent == p.set.Name
		},
		GetOwner: p.freshSet,
		Patch:    claim.PatchPod(p.client),
	}
	claimed, err := claims.Claim(ctx, candidates)
	if err != nil {
		return fmt.Errorf("claim pods: %w", err)
	}
	p.members = make([]member, 0, len(claimed))
	for _, pod := range claimed {
		if _, ordinal, ok := splitName(pod.Name); ok {
			p.members = append(p.members, member{Pod: pod, ordinal: ordinal})
		}
	}
	slices.SortFunc(p.members, func(a, b member) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return nil
}

// replicas are the pods that the set asks for, in ascending order.
func (p *pass) replicas() []member {
	return slices.DeleteFunc(slices.Clone(p.members), func(m member) bool { return !p.ordinals.contain(m.ordinal) })
}

// condemned are the other ones, in descending order.
func (p *pass) condemned() []member {
	condemned := slices.DeleteFunc(slices.Clone(p.members), func(m member) bool { return p.ordinals.contain(m.ordinal) })
	slices.Reverse(condemned)
	return condemned
}

// isReady tells whether the pod runs and is ready.
func isReady(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning && availability.IsReady(pod) }

func (p *pass) isAvailable(pod *v1.Pod) bool {
	return availability.IsAvailable(pod, p.set.Spec.MinReadySeconds, p.now)
}

// isUnavailable tells whether the pod counts against maxUnavailable.
func (p *pass) isUnavailable(pod *v1.Pod) bool {
	return !p.isAvailable(pod) || pod.DeletionTimestamp != nil
}

// isOld tells whether the pod is of another revision than the update revision.
func (p *pass) isOld(pod *v1.Pod) bool { return revisionOf(pod) != p.update.Name }

// nextCheck is when a ready pod becomes available, which no event tells; 0 if none does.
func (p *pass) nextCheck() time.Duration {
	pods := make([]*v1.Pod, len(p.members))
	for i, member := range p.members {
		pods[i] = member.Pod
	}
	next, found := availability.NextCheck(pods, p.set.Spec.MinReadySeconds, p.now, p.clock)
	if !found {
		return 0
	}
	return max(next, time.Millisecond)
}

// count sets status to what there is.
func (p *pass) count() {
	p.status = appsv1.StatefulSetStatus{
		ObservedGeneration: p.set.Generation,
		CurrentRevision:    p.current.Name,
		UpdateRevision:     p.update.Name,
		CollisionCount:     ptr.To(p.collisions),
		Conditions:         slices.Clone(p.set.Status.Conditions),
	}
	for _, pod := range p.members {
		p.status.Replicas++
		if isReady(pod.Pod) {
			p.status.ReadyReplicas++
			if p.isAvailable(pod.Pod) {
				p.status.AvailableReplicas++
			}
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		if revisionOf(pod.Pod) == p.current.Name {
			p.status.CurrentReplicas++
		}
		if revisionOf(pod.Pod) == p.update.Name {
			p.status.UpdatedReplicas++
		}
	}
}

// complete ends an update that has come to all pods.
func (p *pass) complete() {
	s := &p.status
	if s.UpdatedReplicas != s.Replicas || s.ReadyReplicas != s.Replicas || int(s.Replicas) != replicasOf(p.set) {
		return
	}
	s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	p.recreated()
}
