package deployment_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// The least possible writes: of the ReplicaSet its creation, and of the status
// one that tells of it, one when enough replicas are available and one when all
// are, beside one for each second that the rollout takes.
func TestRolloutsAreToldOfInFewWrites(t *testing.T) {
	t.Parallel()
	c := start(t)
	begin := time.Now()
	c.create(newDeployment("web", 20))
	c.runPods(everyPod)
	c.waitFor("web", "completion", all(complete, progressing(corev1.ConditionTrue, "NewReplicaSetAvailable"),
		condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable")))
	statuses := c.statusWrites()
	took := time.Since(begin)
	if most := 3 + int(took/time.Second); statuses > most {
		t.Errorf("%d writes of the status in %s, want %d at most", statuses, took, most)
	}
	// Nothing follows: not for the end of the pace, nor for a restart.
	before := len(c.writes())
	c.deployments.Restart()
	harness.Throughout(t, 2*time.Second, "silence after the rollout", func(ctx context.Context) error {
		if writes := c.writes(); len(writes) != before {
			return fmt.Errorf("written %+v", writes[before:])
		}
		return nil
	})
}

// writes of deployment-controller: those of Deployments, and of ReplicaSets but for their status.
func (c *cluster) writes() []apiproxy.Request {
	return c.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Write() && (r.Resource == deploymentResource || r.Resource == replicaSetResource && r.Subresource == "")
	})
}

func (c *cluster) statusWrites() int {
	return len(c.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Write() && r.Resource == deploymentResource && r.Subresource == "status"
	}))
}
