package podgc

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podstatus"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
)

// Condition that tells why a pod of a vanished node has failed, for those who
// do not count disruptions as failures.
const (
	disruptionReason  = "DeletionByPodGC"
	disruptionMessage = "PodGC: node no longer exists"
)

// atOnce is how many requests of a pass are under way at the most.
const atOnce = 50

// each calls call for all items, several at once, whether or not some fail. It
// returns the first error, and calls no more once ctx has ended.
func each[T any](ctx context.Context, items []T, call func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, item := range items {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return call(ctx, item)
		})
	}
	return group.Wait()
}

// forceDelete deletes pod, and counts and logs it.
func (c *collector) forceDelete(ctx context.Context, why reason, pod *v1.Pod) error {
	c.metrics.deletions.WithLabelValues(pod.Namespace, string(why)).Inc()
	err := c.end(ctx, why, pod)
	if err == nil {
		c.logger.Info("Pod was force-deleted", "pod", cache.MetaObjectToName(pod).String(), "uid", pod.UID, "reason", why)
		return nil
	}
	err = fmt.Errorf("pod %s: %w", cache.MetaObjectToName(pod), err)
	if !podcontrol.GivenUp(ctx, err) {
		c.metrics.errors.WithLabelValues(pod.Namespace, string(why)).Inc()
		c.logger.Error("Pod was not force-deleted", "reason", why, "err", err)
	}
	return err
}

// end gives pod an outcome if it has none, and then deletes it. Who counts
// outcomes sees that of a pod that no kubelet will report. Whoever has removed
// the pod, or replaced it, was faster: nothing is left to do.
func (c *collector) end(ctx context.Context, why reason, pod *v1.Pod) error {
	if !ended(pod) {
		err := podstatus.Patch(ctx, c.client, pod, func(status *v1.PodStatus) { c.fail(status, why, pod.Generation) })
		switch {
		case uidguard.Refused(err):
			return nil
		case err != nil:
			return fmt.Errorf("set the phase to Failed: %w", err)
		}
	}
	if held(pod) {
		return nil
	}
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !notfound.ByAPIServer(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// fail sets the outcome of a pod of the given generation.
func (c *collector) fail(status *v1.PodStatus, why reason, generation int64) {
	status.Phase = v1.PodFailed
	status.ObservedGeneration = generation
	if why == orphaned {
		podstatus.SetCondition(status, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: disruptionReason, Message: disruptionMessage,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
	}
}
