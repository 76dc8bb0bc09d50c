package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// podWrites wants so many writes of pods in all.
func (c *cluster) podWrites(want int) func(context.Context) error {
	return func(context.Context) error {
		if writes := c.Writes(podResource); len(writes) != want {
			return fmt.Errorf("%d writes of pods, want %d: %v", len(writes), want, writes)
		}
		return nil
	}
}

func TestAcceptance14_DeletedReplicaSetsLeaveTheirPodsAlone(t *testing.T) {
	t.Parallel()
	t.Run("orphan", func(t *testing.T) {
		t.Parallel()
		c := start(t, harness.Options{})
		c.create(newReplicaSet("web", 2))
		pods := c.waitForPods("web", 2)
		c.waitForStatus("web", "two replicas", counts(2, 0, 0))
		writes := len(c.Writes(podResource))
		c.deleteReplicaSet("web", metav1.DeletePropagationOrphan)
		for _, pod := range pods {
			c.dropOwners(pod.Name)
		}
		c.waitForStatus("web", "no replica", counts(0, 0, 0))
		harness.Throughout(t, aWhile, "peace of the orphans", c.podWrites(writes))
		c.finishDeletion("web")
		harness.Throughout(t, aWhile/2, "peace of the orphans", c.podWrites(writes))
		c.waitForPods("web", 2)
	})
	t.Run("foreground", func(t *testing.T) {
		t.Parallel()
		c := start(t, harness.Options{})
		c.create(newReplicaSet("web", 2))
		pods := c.waitForPods("web", 2)
		c.waitForStatus("web", "two replicas", counts(2, 0, 0))
		writes := len(c.Writes(podResource))
		c.deleteReplicaSet("web", metav1.DeletePropagationForeground)
		// There is no order between two watches: a pod that goes before the
		// deletion of its owner is seen is replaced, and rightly so.
		c.waitForStatus("web", "deletion seen", counts(2, 0, 0))
		c.deletePod(pods[0].Name)
		c.waitForStatus("web", "one replica", counts(1, 0, 0))
		harness.Throughout(t, aWhile, "no replacement", c.podWrites(writes))
	})
	t.Run("background", func(t *testing.T) {
		t.Parallel()
		c := start(t, harness.Options{})
		c.create(newReplicaSet("web", 2))
		pods := c.waitForPods("web", 2)
		c.waitForStatus("web", "two replicas", counts(2, 0, 0))
		writes := len(c.Writes(podResource))
		c.deleteReplicaSet("web", metav1.DeletePropagationBackground)
		harness.Eventually(t, soon, "end of the ReplicaSet", func(ctx context.Context) error {
			_, err := c.client.AppsV1().ReplicaSets(c.ns).Get(ctx, "web", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it is still there"), err)
		})
		// Within the watch of ReplicaSets there is an order: who has seen the
		// next one has seen the end of this one.
		c.create(newReplicaSet("next", 0))
		c.waitForStatus("next", "next one seen", counts(0, 0, 0))
		c.deletePod(pods[0].Name)
		harness.Throughout(t, aWhile, "no replacement", c.podWrites(writes))
	})
}

func TestAcceptance15_RecreatedReplicaSetAdoptsAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 2))
	before := names(c.waitForPods("web", 2))
	c.waitForStatus("web", "two replicas", counts(2, 0, 0))
	c.Proxy.Forget()
	c.deleteReplicaSet("web", metav1.DeletePropagationOrphan)
	for _, pod := range before {
		c.dropOwners(pod)
	}
	c.finishDeletion("web")
	c.controller.CatchUp() // or it does not know the orphans yet
	rs := c.create(newReplicaSet("web", 2))
	c.waitForStatus("web", "two replicas again", counts(2, 0, 0))
	pods := c.waitForPods("web", 2)
	if after := names(pods); !slices.Equal(before, after) {
		t.Errorf("pods %v, want %v", after, before)
	}
	for _, pod := range pods {
		if !metav1.IsControlledBy(&pod, rs) {
			t.Errorf("pod %s has owners %s", pod.Name, inJSON(pod.OwnerReferences))
		}
	}
	for _, write := range c.Writes(podResource) {
		if write.Verb != "patch" {
			t.Errorf("a pod was written: %+v", write)
		}
	}
}
