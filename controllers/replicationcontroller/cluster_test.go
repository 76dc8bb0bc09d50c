package replicationcontroller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/availability"
	"github.com/wheelhouse-project/wheelhouse/controllers/replicationcontroller"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is ample for a few reconciles on a busy machine, minutes for hundreds.
	soon    = 2 * time.Minute
	minutes = 3 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = 2 * time.Second
)

var podResource = apischema.GroupResource{Resource: "pods"}

// cluster is a namespace with a running replicationcontroller-controller.
type cluster struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	client     kubernetes.Interface
	ns         string
}

func start(t *testing.T) *cluster {
	t.Helper()
	engine := harness.New(t, controlplane.Shared(t), harness.Options{})
	return &cluster{
		Engine:     engine,
		t:          t,
		controller: engine.Start(replicationcontroller.Descriptor(), nil),
		client:     engine.Admin,
		ns:         engine.Namespace,
	}
}

// template has the label app: NAME. Its pods are gone as soon as they are deleted.
func template(app string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []v1.Container{{Name: "c", Image: "registry.example/c"}},
		},
	}
}

// create creates a ReplicationController without selector, so that it gets its template's labels.
func (c *cluster) create(name string, replicas int32, changes ...func(*v1.ReplicationController)) *v1.ReplicationController {
	c.t.Helper()
	rc := &v1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.ReplicationControllerSpec{Replicas: &replicas, Template: ptr.To(template(name))},
	}
	for _, change := range changes {
		change(rc)
	}
	created, err := c.client.CoreV1().ReplicationControllers(c.ns).Create(c.t.Context(), rc, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) scale(name string, replicas int32) {
	c.t.Helper()
	_, err := c.client.CoreV1().ReplicationControllers(c.ns).UpdateScale(c.t.Context(), name,
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.ns}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}},
		metav1.UpdateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// activePods of app, by name.
func (c *cluster) activePods(ctx context.Context, app string) ([]v1.Pod, error) {
	list, err := c.client.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod v1.Pod) bool { return !availability.IsActive(&pod) }), nil
}

// waitForPods waits until app has count active pods, and returns them.
func (c *cluster) waitForPods(app string, count int) []v1.Pod {
	c.t.Helper()
	var pods []v1.Pod
	harness.Eventually(c.t, soon, fmt.Sprintf("%d pods of %s", count, app), func(ctx context.Context) error {
		var err error
		if pods, err = c.activePods(ctx, app); err != nil {
			return err
		}
		if len(pods) != count {
			return fmt.Errorf("%d active pods", len(pods))
		}
		return nil
	})
	return pods
}

// waitForStatus waits for counts, and for a ReplicaFailure of a reason; none if it is empty.
func (c *cluster) waitForStatus(name string, replicas, ready, available int32, failure string) *v1.ReplicationController {
	c.t.Helper()
	var rc *v1.ReplicationController
	harness.Eventually(c.t, soon, "status of "+name, func(ctx context.Context) error {
		var err error
		if rc, err = c.client.CoreV1().ReplicationControllers(c.ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		s, reason := rc.Status, ""
		for _, condition := range s.Conditions {
			if condition.Type == v1.ReplicationControllerReplicaFailure && condition.Status == v1.ConditionTrue {
				reason = condition.Reason
			}
		}
		if s.ObservedGeneration != rc.Generation || s.Replicas != replicas || s.ReadyReplicas != ready ||
			s.AvailableReplicas != available || reason != failure {
			return fmt.Errorf("want %d/%d/%d %q of generation %d, got %+v", replicas, ready, available, failure, rc.Generation, s)
		}
		return nil
	})
	return rc
}

// relabel changes the label app of a pod.
func (c *cluster) relabel(pod, app string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"app":%q}}}`, app)
	if _, err := c.client.CoreV1().Pods(c.ns).Patch(c.t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// setReady makes a pod ready since a time, as its kubelet does.
func (c *cluster) setReady(pod string, since time.Time) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`,
		since.UTC().Format(time.RFC3339))
	_, err := c.client.CoreV1().Pods(c.ns).Patch(c.t.Context(), pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		c.t.Fatal(err)
	}
}

// owners of pods, by UID of the pod.
func owners(pods []v1.Pod) map[types.UID]string {
	of := map[types.UID]string{}
	for i := range pods {
		if ref := metav1.GetControllerOf(&pods[i]); ref != nil {
			of[pods[i].UID] = ref.APIVersion + " " + ref.Kind + " " + ref.Name
		} else {
			of[pods[i].UID] = ""
		}
	}
	return of
}
