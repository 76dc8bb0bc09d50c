package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance11_CheapPodsAreDeletedFirst(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		gate  bool
		costs [2]string
		kept  int
	}{
		{"the one that costs more stays", true, [2]string{"1000", "100"}, 0},
		{"with equal costs the one without restarts stays", true, [2]string{"100", "100"}, 1},
		{"without the gate the one without restarts stays", false, [2]string{"1000", "100"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, harness.Options{Configure: func(config *schema.ControllerManagerConfiguration) {
				config.FeatureGates = map[string]bool{"PodDeletionCost": test.gate}
			}})
			c.create(newReplicaSet("web", 2))
			pods := c.waitForPods("web", 2)
			since := time.Now().Add(-time.Hour)
			for i, pod := range pods {
				c.changePod(pod.Name, func(pod *v1.Pod) { pod.Annotations = map[string]string{v1.PodDeletionCost: test.costs[i]} })
				c.setPodStatus(pod.Name, readySince(since), restarts([]int32{5, 0}[i]))
			}
			c.waitForStatus("web", "two ready", counts(2, 2, 2))
			c.scale("web", 1)
			c.waitForStatus("web", "one ready", counts(1, 1, 1))
			if left := c.waitForPods("web", 1)[0].Name; left != pods[test.kept].Name {
				t.Errorf("%s was kept, want %s", left, pods[test.kept].Name)
			}
		})
	}
}

func TestAcceptance12_LeastUsefulPodsAreDeletedFirst(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	c.create(newReplicaSet("web", 3))
	pods := c.waitForPods("web", 3)
	c.bind(pods[0].Name, "node-a")
	c.bind(pods[1].Name, "node-b")
	c.setPodStatus(pods[1].Name, phase(v1.PodRunning))
	c.setPodStatus(pods[0].Name, readySince(time.Now())) // seen after the other changes
	c.waitForStatus("web", "one ready", counts(3, 1, 1))
	for _, want := range [][]string{{pods[0].Name, pods[1].Name}, {pods[0].Name}} {
		c.scale("web", int32(len(want)))
		slices.Sort(want)
		if left := names(c.waitForPods("web", len(want))); !slices.Equal(left, want) {
			t.Fatalf("left %v, want %v", left, want)
		}
	}
}

// podsOnNodes creates a ReplicaSet whose pods are ready, on the given nodes.
func (c *cluster) podsOnNodes(rs *appsv1.ReplicaSet, nodes ...string) map[string]string {
	c.t.Helper()
	c.create(rs)
	byNode := map[string]string{}
	since := time.Now().Add(-time.Hour)
	for i, pod := range c.waitForPods(rs.Name, len(nodes)) {
		c.bind(pod.Name, nodes[i])
		c.setPodStatus(pod.Name, readySince(since))
		byNode[pod.Name] = nodes[i]
	}
	ready := int32(len(nodes))
	c.waitForStatus(rs.Name, "all ready", counts(ready, ready, ready))
	return byNode
}

func TestAcceptance13_PodsBesideThoseOfSiblingsAreDeletedFirst(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	parent, err := c.client.CoreV1().ConfigMaps(c.ns).Create(t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "parent"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ofParent := func(rs *appsv1.ReplicaSet) {
		rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(parent, v1.SchemeGroupVersion.WithKind("ConfigMap"))}
	}
	old := c.podsOnNodes(newReplicaSet("old", 2, ofParent), "node-a", "node-b")
	c.podsOnNodes(newReplicaSet("new", 1, ofParent), "node-a")
	c.podsOnNodes(newReplicaSet("unrelated", 3), "node-b", "node-b", "node-b")
	c.scale("old", 1)
	if left := c.waitForPods("old", 1)[0].Name; old[left] != "node-b" {
		t.Errorf("the pod on %s was kept", old[left])
	}
}

// ReplicaSets without a controller spread their own pods.
func TestBareReplicaSetsAreSpread(t *testing.T) {
	t.Parallel()
	c := start(t, harness.Options{})
	nodes := c.podsOnNodes(newReplicaSet("web", 5), "node-a", "node-b", "node-a", "node-c", "node-a")
	c.scale("web", 4)
	left := map[string]int{}
	for _, pod := range c.waitForPods("web", 4) {
		left[nodes[pod.Name]]++
	}
	if left["node-a"] != 2 || left["node-b"] != 1 || left["node-c"] != 1 {
		t.Errorf("pods left by node: %v", left)
	}
	harness.Eventually(t, minutes, "the metric", func(context.Context) error {
		families, err := c.controller.Metrics.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			if family.GetName() == "replicaset_controller_sorting_deletion_age_ratio" {
				if buckets := len(family.GetMetric()[0].GetHistogram().GetBucket()); buckets != 6 {
					return fmt.Errorf("%d buckets", buckets)
				}
				return nil
			}
		}
		return errors.New("it is not there")
	})
}
