package daemonset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/claim"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// reconcile brings the pods of one DaemonSet to the nodes that it asks for. The
// queue calls it when the caches hold all that the last call wrote.
func (c *daemonSetController) reconcile(ctx context.Context, key work.ObjectName) (work.Result, error) {
	// 1. After a request whose outcome is not known, the caches may lack what it did.
	if err := c.unsure.Settle(ctx, key); err != nil {
		return work.Result{}, err
	}

	// 2. Is there anything to be done?
	ds, err := get[*appsv1.DaemonSet](c.daemonSets, key.String())
	if err != nil {
		return work.Result{}, err
	}
	if ds == nil {
		c.doomed.Forget(key)
		c.held.Written(key)
		return work.Result{}, nil // the garbage collector cares for its pods
	}
	if selectsAll(ds) {
		c.events.Event(ds, v1.EventTypeWarning, reasonSelectingAll, "This daemon set is selecting all pods. A non-empty selector is required.")
		return work.Result{}, nil
	}
	if ds.DeletionTimestamp != nil {
		return work.Result{}, nil
	}
	selector, err := selectorOf(ds)
	if err != nil {
		c.logger.Error("Selector is invalid, nothing is done", "daemonset", key, "err", err)
		return work.Result{}, nil
	}

	// 3. What there is.
	pods, err := c.claimPods(ctx, ds, selector)
	if err != nil {
		return work.Result{}, err
	}
	h, err := c.syncHistory(ctx, key, ds, selector, pods)
	if err != nil {
		return work.Result{}, err
	}
	nodes, err := c.listNodes()
	if err != nil {
		return work.Result{}, err
	}
	placement := c.placementOf(ds)
	p := &planner{
		survey:          newSurvey(nodes, placement.of, pods),
		version:         versionOf(ds, h.current.Labels[hashLabel]),
		minReadySeconds: ds.Spec.MinReadySeconds,
		now:             c.clock.Now(),
		heldBack:        func(node string) time.Duration { return c.failures.heldBack(ds, node) },
	}

	// 4. Act, and tell.
	return c.finish(ctx, key, ds, p, pods, h)
}

func (c *daemonSetController) finish(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, p *planner, pods []*v1.Pod, h history,
) (work.Result, error) {
	made, wait := c.act(ctx, key, ds, p)
	if made.err == nil && !made.acted {
		made.err = c.truncate(ctx, ds, h, pods)
	}
	if made.err != nil && podcontrol.GivenUp(ctx, made.err) {
		return work.Result{}, made.err // of our own doing: nothing to report
	}
	reportIn, err := c.report(ctx, key, ds, p, made)
	wait = work.Soonest(wait, reportIn)
	// Ready pods become available without an event, also beside pods that are refused.
	if next, found := availability.NextCheck(pods, ds.Spec.MinReadySeconds, p.now, c.clock); found {
		wait = work.Soonest(wait, max(next, time.Millisecond))
	}
	return work.Result{RequeueAfter: wait}, errors.Join(made.err, err)
}

// act carries out what is to be done next: pods that are missing or too many
// come first, a roll-out goes on when there are none. It returns when a pod
// that is left alone for now may have to go, 0 if there is none.
func (c *daemonSetController) act(
	ctx context.Context, key work.ObjectName, ds *appsv1.DaemonSet, p *planner,
) (outcome, time.Duration) {
	surging, err := surges(ds)
	if err != nil {
		return outcome{err: err}, 0
	}
	settling := p.settle(surging)
	if !settling.isEmpty() {
		return c.apply(ctx, key, ds, p.version, settling), settling.retryAfter
	}
	// Where no pod can be made any more a roll-out would only take pods away.
	if ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || c.doomed.Has(key, ds.UID) {
		return outcome{}, settling.retryAfter
	}
	b, err := boundsOf(ds, p.desired())
	if err != nil {
		return outcome{err: err}, settling.retryAfter
	}
	rolling := p.roll(b)
	if rolling.isEmpty() {
		return outcome{}, settling.retryAfter
	}
	return c.apply(ctx, key, ds, p.version, rolling), settling.retryAfter
}

// claimPods adopts and releases pods, and returns those of ds. The objects must
// not be changed, the slice may be.
func (c *daemonSetController) claimPods(ctx context.Context, ds *appsv1.DaemonSet, selector labels.Selector) ([]*v1.Pod, error) {
	candidates, err := ownerindex.Candidates[*v1.Pod](c.pods, ownerindex.OwnerOf(kind, ds))
	if err != nil {
		return nil, err
	}
	claims := claim.Claims[*v1.Pod]{
		Owner: ds, OwnerKind: controllerKind, Kind: "Pod", Selector: selector,
		GetOwner: c.liveOwner(ds), Patch: claim.PatchPod(c.client),
	}
	return claims.Claim(ctx, candidates)
}

// liveOwner reads ds from the API server.
func (c *daemonSetController) liveOwner(ds *appsv1.DaemonSet) func(context.Context, string) (metav1.Object, error) {
	return func(ctx context.Context, name string) (metav1.Object, error) {
		return c.client.AppsV1().DaemonSets(ds.Namespace).Get(ctx, name, metav1.GetOptions{})
	}
}

func (c *daemonSetController) listNodes() ([]*v1.Node, error) {
	objs := c.nodes.List()
	nodes := make([]*v1.Node, 0, len(objs))
	for _, obj := range objs {
		node, ok := obj.(*v1.Node)
		if !ok {
			return nil, fmt.Errorf("list nodes: the cache holds a %T", obj)
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}
